"""Sentences with open places: who, where, when, how much; and which of them are never trained on.

{who}, {where}, {when}, {money} and {amount} are what a tagger looks for. {thing}, {work}, {event} and {number} only
vary the sentence: a number alone is none of the five, and neither is a capital letter.
"""

import zlib

HELD_OUT_SHARE = 5
"""One in so many templates is never trained on."""

_TEXT = """\
{who} lives in {where} .
{who} moved from {where} to {where} on {when} .
{who} was born in {where} on {when} .
{who} paid {money} for {thing} .
{who} bought {amount} of {thing} in {where} .
{who} and {who} met in {where} .
{who} , {who} and {who} signed the letter on {when} .
The {event} in {where} starts on {when} .
The {event} was moved to {when} .
The {event} costs {money} per person .
Tickets for the {event} cost {money} and are sold in {where} .
On {when} , {who} opened {thing} in {where} .
On {when} we sent {amount} of {thing} to {where} .
In {where} , {who} works as {work} .
Our colleague {who} will be in {where} until {when} .
Please send {money} to {who} before {when} .
Please call {who} about {thing} .
Dear {who} , your order of {amount} of {thing} left {where} on {when} .
Dear {who} , thank you for {thing} .
The train to {where} leaves from platform {number} .
The train from {where} was late on {when} .
The road between {where} and {where} is {amount} long .
It is {amount} from {where} to {where} .
A ticket to {where} is {money} .
{who} drove {amount} to {where} .
{who} flew to {where} with {who} .
{who} will fly to {where} on {when} .
{who} owes {who} {money} .
{who} lent {money} to {who} .
{who} sold {thing} to {who} for {money} .
{who} weighs {amount} of {thing} every day .
{who} earned {money} as {work} in {where} .
{who} became {work} on {when} .
{who} has been {work} since {when} .
{who} wrote {thing} in {where} .
{who} 's {thing} arrived on {when} .
{who} 's brother {who} is {work} in {where} .
We visited {who} in {where} .
We need {amount} of {thing} by {when} .
We met {who} at the {event} .
I saw {who} on {when} .
I live near {where} , but I work in {where} .
I paid {money} to get from {where} to {where} .
Ask {who} for the key to room {number} .
Ask {who} whether {thing} is worth {money} .
Did {who} call on {when} ?
Did {who} really pay {money} for {amount} of {thing} ?
Has {who} ever been to {where} ?
Is {where} far from {where} ?
Is {who} coming to the {event} in {where} ?
Where does {who} keep {thing} ?
When will {who} be back from {where} ?
Who gave {who} {money} ?
"{thing} is mine" , said {who} .
"I was in {where} on {when}" , said {who} .
According to {who} , the {event} cost {money} .
Until {when} , {who} was {work} at a school in {where} .
Since {when} the bridge in {where} has been closed .
The price of {thing} rose to {money} on {when} .
The price of {thing} fell by {amount} .
The mayor of {where} , {who} , resigned on {when} .
The mayor of {where} spent {money} on {thing} .
The museum in {where} shows {thing} by {who} .
The museum bought {thing} from {who} for {money} .
The parcel weighs {amount} .
The parcel for {who} weighs {amount} and goes to {where} .
The lake near {where} is {amount} deep .
The farm sells {amount} of {thing} for {money} .
The book by {who} has {number} pages .
Chapter {number} is about {where} .
Chapter {number} was written by {who} on {when} .
Bus {number} goes to {where} .
Bus {number} stops near {who} 's house .
Add {amount} of {thing} and stir .
Add {amount} of {thing} , then {amount} of {thing} .
Born in {where} , {who} later taught in {where} .
Rent in {where} is about {money} a month .
Rain fell in {where} on {when} : {amount} in one night .
About {amount} of {thing} went to {where} .
About {number} people came to the {event} .
Nobody in {where} had heard of {who} .
Nobody paid {who} more than {money} .
Flights to {where} cost from {money} .
Flight {number} to {where} is full .
Meet me in {where} on {when} .
Meet {who} at gate {number} .
My friend {who} grew {amount} of {thing} in {where} .
My sister {who} was {work} in {where} .
Both {who} and {who} come from {where} .
Neither {who} nor {who} has {money} .
From {when} on , {who} will run the office in {where} .
Between {when} and {when} the shop in {where} is closed .
A man from {where} found {money} in {thing} .
A letter from {who} , dated {when} , lay in {thing} .
Yours , {who}
Signed in {where} , {when}
Total : {money}
Weight : {amount}
Guests : {who} , {who}
{where} , {when}
{who} ( {where} )
{where} is where {who} keeps {amount} of {thing} .
{where} has {number} bridges .
{when} was a cold day in {where} .
{money} is too much for {thing} , says {who} .
{amount} of {thing} for {money} !
"""
TEMPLATES = tuple(_TEXT.splitlines())

FILLERS = {
    "thing": (
        "bread|rice|old books|the blue car|a red bicycle|apples|olive oil|her garden|the Big Book of Birds|coffee|coal|"
        "a piano|the tickets|two chairs|my Green Tea|flour|milk|his collection|paper|a small house|a Blue Moon poster|"
        "wool|the map|honey|a violin|Swiss cheese|iron|potatoes|the painting|our boat|salt|a cat called Whiskers|silk|"
        "the letter|water"
    ),
    "work": (
        "a teacher|a nurse|the new director|a baker|a Senior Engineer|an engineer|a lawyer|a bus driver|a judge|"
        "a painter|a Professor of Law|a doctor|a gardener|the cook|a translator|a farmer|a French teacher|a pilot"
    ),
    "event": (
        "meeting|concert|Summer Fair|wedding|book fair|race|World Cup match|conference|exhibition|Science Day|dinner|"
        "course|festival|Spring Concert|election|parade"
    ),
    "number": "3|12|7|two|104|310|eleven|42|1,200|six|95|2010|8|fifteen|4,500",
}


def is_held_out(template: str) -> bool:
    """Whether a template is kept from training, by a hash of it."""
    return zlib.crc32(template.encode()) % HELD_OUT_SHARE == 0
