"""Texts of our own, of many kinds. What a model does with them says more of its rounding than random tokens do."""

_ALL = """
The harbour was quiet that morning. Two boats came in before the tide turned, and the men who unloaded them spoke
little. Maria counted the crates twice, wrote the number into her book, and walked up the hill to the office, where
the lamp had been burning since five. Nobody had expected the letter that lay on her desk.

----

Question: What is the largest planet of the solar system, and how many moons does it have?
Answer: The largest planet is Jupiter. It is more than eleven times as wide as the Earth. About 95 moons are known, of
which the four largest were seen by Galileo in 1610: Io, Europa, Ganymede and Callisto.

----

def mean(values):
    '''Return the arithmetic mean of a list of numbers.

    >>> mean([1, 2, 6])
    3.0
    '''
    if not values:
        raise ValueError('values is empty')
    return sum(values) / len(values)

----

To make bread you need four things:

1. 500 grams of flour
2. 320 ml of warm water
3. one spoon of salt
4. a little yeast

Mix them well, and let the dough rest for an hour under a towel. Then fold it, form a loaf, and bake it at 230 degrees
until the crust is dark and sounds hollow.

----

Dear Mr Olsen,

thank you for your order of 14 March. Unfortunately, two of the items are not in stock at the moment; we expect them
within ten days. Would you like us to send the rest now, or do you prefer to wait? There is no charge for a second
parcel.

Kind regards,
A. Brandt

----

Die Bibliothek öffnet um neun Uhr. Le train pour Lyon part du quai numéro sept. El mercado está cerrado los lunes,
pero la panadería abre todos los días. Il museo si trova vicino alla stazione. De winkel is om de hoek.

----

Prices rose by 2.4 percent in June, the bank said on Thursday, less than the 2.9 percent that most analysts had
forecast. Energy was cheaper than a year ago, while rents and food cost more. "We are not done yet," said its
president, who did not rule out another step in September.

----

The function f is continuous on the closed interval, so it takes a maximum there. Suppose that this maximum lies in
the interior. Then the derivative at that point is zero, because otherwise f would grow to one of its sides. Therefore
x = 0 or x = 2/3, and since f(0) = 0 < f(2/3) = 4/27, the second one is the answer.
"""

OWN_TEXTS = tuple(text.strip() for text in _ALL.split("----"))
