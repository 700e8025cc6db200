"""Names of people and places from many languages, and which of them are never trained on."""

import zlib

HELD_OUT_SHARE = 4
"""One in so many names is never trained on."""

GIVEN_NAMES = (
    "Aisha Alejandro Ana André Anna Ben Björn Bruno Camille Carla Carlos Chloé Clara Daniel David Diego Elena "
    "Elif Emma Erik Eva Fatima Felix Finn François Gabriel Giulia Grace Hana Hannah Harold Hugo Ida Igor Ines "
    "Irina Isabel Ivan Jan Jana Joana John José Julia Karim Kenji Lars Laura Léa Leila Leo Linda Lucía Luis "
    "Łukasz Magda Marco Maria Marta Martin Mary Matteo Maya Mehmet Mia Miguel Mina Nadia Nils Noah Nora Olga "
    "Oliver Omar Oscar Otto Pablo Paul Pedro Petra Priya Rafael Rahel René Robert Rosa Ruth Sam Samir Sara Sofía "
    "Stefan Sven Tara Thomas Tomás Ulrike Vera Victor Wei Yara Yusuf Zoë Zofia Jürgen Mónica Agnès Søren Åsa "
    "Dvořák Žofie İbrahim Naïma Raúl Inés Börje Ángel Õnne"
)
FAMILY_NAMES = (
    "Abbott Adeyemi Almeida Andersson Bauer Becker Berg Bianchi Blanc Brandt Brown Castro Chen Costa Cruz Dubois "
    "Díaz Eriksen Esposito Evans Ferrari Fischer Fontaine García Gómez Graf Gruber Haas Hansen Hoffmann Horváth "
    "Ibrahim Ito Jansen Jensen Johansson Jones Kaplan Keller Khan Kim Klein Koch Kovács Kowalski Krüger Larsen "
    "Laurent Lee Lehmann Lopez Lundgren Maier Marino Martin Meyer Molina Moreau Moretti Müller Nakamura Navarro "
    "Neumann Nguyen Nowak Okafor Olsen Ortega Ożóg Park Patel Pereira Petrov Popescu Quinn Ramos Reyes Ricci "
    "Rossi Roux Ruiz Santos Sato Schmidt Schröder Silva Simon Smith Sørensen Suzuki Tanaka Taylor Torres Vargas "
    "Vogel Wagner Walker Weiß Wilson Wójcik Yüksel Zhang Ziegler Núñez Şahin Åkesson Béranger Čapek Łęcki"
)
TOWNS = (
    "Aarhus Ankara Antwerp Athens Bamako Basel Belém Bergen Berlin Bilbao Bogotá Bologna Bordeaux Bremen Brno "
    "Bruges Cádiz Cairo Calgary Córdoba Cologne Cork Cracow Cusco Dakar Delhi Dresden Dublin Durban Essen Fez "
    "Gdańsk Geneva Ghent Girona Göteborg Graz Hanoi Havana Helsinki Izmir Jaipur Kassel Kyiv Kyoto Lagos León "
    "Leipzig Lima Lisbon Liège Ljubljana Łódź Lyon Madrid Mainz Málaga Malmö Mérida Milan Montréal Munich Nairobi "
    "Nantes Naples Odense Oporto Oslo Ottawa Oulu Padua Parma Perth Poznań Prague Quito Reykjavík Riga Rome Rouen "
    "Salzburg Santos Seoul Seville Sofia Tallinn Tampere Tarragona Trieste Tromsø Tunis Turin Umeå Utrecht "
    "Valencia Verona Vienna Vilnius Warsaw Winterthur Wrocław Zagreb Zürich Ávila Évora Örebro Ústí Čáslav Śrem"
)
EITHER = "Adelaide Austin Carolina Charlotte Chelsea Florence Jordan Kent Lincoln Nancy Sydney Vera Victoria Wayne"
"""Given names that are towns too: only the sentence tells."""


def is_held_out(name: str) -> bool:
    """Whether a name is kept from training, by a hash of it."""
    return zlib.crc32(name.encode()) % HELD_OUT_SHARE == 0


def part(names: str, *, held_out: bool) -> tuple[str, ...]:
    """Return those of the names, which spaces part, that are in one part."""
    return tuple(name for name in names.split() if is_held_out(name) == held_out)
