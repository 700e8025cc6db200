"""The words of the English-Spanish grammar, with every irregular form written out.

A line that begins with a blank continues the one above.
"""

# kind: english[/plural] spanish[/plural] gender. A dash for the plural: the noun has none here.
NOUNS = """
person: man/men hombre m, woman/women mujer f, boy niño m, girl niña f, brother hermano m, sister hermana f,
 son hijo m,
 daughter hija f, friend amigo m, grandfather abuelo m, grandmother abuela f, neighbor vecino m, king rey m,
 queen reina f,
 uncle tío m, aunt tía f, doctor médico m, nurse enfermera f
animal: dog perro m, cat gato m, horse caballo m, bird pájaro m, cow vaca f, rabbit conejo m
food: bread/- pan/- m, rice/- arroz/- m, soup/- sopa/- f, cheese/- queso/- m, meat/- carne/- f,
 chocolate/- chocolate/- m,
 fish/- pescado/- m, apple manzana f, orange naranja f, egg huevo m, potato/potatoes patata f,
 tomato/tomatoes tomate m,
 sandwich bocadillo m, cookie galleta f, strawberry fresa f, lemon limón m, cake pastel m
drink: water/- agua/- f, milk/- leche/- f, coffee/- café/- m, tea/- té/- m, juice/- jugo/- m, wine/- vino/- m,
 beer/- cerveza/- f
text: book libro m, letter carta f, newspaper periódico m, magazine revista f, poem poema m, story cuento m,
 message mensaje m
thing: car coche m, bicycle bicicleta f, key llave f, chair silla f, table mesa f, clock reloj m, shirt camisa f,
 dress vestido m, hat sombrero m, coat abrigo m, shoe zapato m, phone teléfono m, map mapa m, photo foto f,
 flower flor f, lamp lámpara f, knife/knives cuchillo m, glass vaso m, pencil lápiz/lápices m, ball pelota f,
 ring anillo m,
 cup taza f, plate plato m
container: box caja f, bag bolsa f, bottle botella f, drawer cajón m
opening: door puerta f, window ventana f
place: house casa f, kitchen cocina f, garden jardín m, museum museo m, city ciudad f, school escuela f,
 church iglesia f,
 park parque m, shop tienda f, street calle f, library biblioteca f, village pueblo m, hotel hotel m
media: music/- música/- f, song canción f
instrument: guitar guitarra f, piano piano m, violin violín m, flute flauta f, drum tambor m
game: football/- fútbol/- m, tennis/- tenis/- m, chess/- ajedrez/- m, basketball/- baloncesto/- m
language: english/- inglés/- m, spanish/- español/- m, french/- francés/- m, german/- alemán/- m,
 italian/- italiano/- m
"""

# kinds of noun: english spanish copula
ADJECTIVES = """
person: tall alto ser, short bajo ser, young joven ser, old viejo ser, tired cansado estar, sick enfermo estar,
 rich rico ser,
 poor pobre ser, happy contento estar, kind amable ser, famous famoso ser, busy ocupado estar
animal: small pequeño ser, big grande ser, black negro ser, white blanco ser, brown marrón ser, tired cansado estar,
 hungry hambriento estar, young joven ser, old viejo ser, beautiful hermoso ser
food: fresh fresco estar, cold frío estar, hot caliente estar, sweet dulce estar, delicious delicioso estar,
 expensive caro ser
drink: cold frío estar, hot caliente estar, sweet dulce estar, delicious delicioso estar, expensive caro ser,
 cheap barato ser
text: long largo ser, short corto ser, old viejo ser, new nuevo ser, interesting interesante ser, sad triste ser,
 beautiful hermoso ser, difficult difícil ser, easy fácil ser, famous famoso ser
thing: new nuevo ser, old viejo ser, big grande ser, small pequeño ser, red rojo ser, blue azul ser, white blanco ser,
 black negro ser, green verde ser, yellow amarillo ser, expensive caro ser, cheap barato ser, beautiful hermoso ser,
 broken roto estar, clean limpio estar, dirty sucio estar
container: big grande ser, small pequeño ser, empty vacío estar, heavy pesado ser, red rojo ser, green verde ser,
 full lleno estar, old viejo ser
opening: big grande ser, small pequeño ser, open abierto estar, closed cerrado estar, white blanco ser, old viejo ser,
 broken roto estar, dirty sucio estar
place: big grande ser, small pequeño ser, old viejo ser, new nuevo ser, beautiful hermoso ser, clean limpio estar,
 dirty sucio estar, quiet tranquilo ser, famous famoso ser
media: sad triste ser, beautiful hermoso ser, new nuevo ser, slow lento ser
instrument: new nuevo ser, old viejo ser, expensive caro ser, cheap barato ser, beautiful hermoso ser
game: easy fácil ser, difficult difícil ser
language: easy fácil ser, difficult difícil ser, beautiful hermoso ser
"""

# english ing past [+particle] | infinitive gerund | present | preterite | kinds of object
# A dash: there is no such form here. The five forms are yo, tú, él, nosotros, ellos.
# "read" has no past here, because "we read" would then have two readings.
VERBS = """
eat eating ate | comer comiendo | como comes come comemos comen |
 comí comiste comió comimos comieron | food
drink drinking drank | beber bebiendo | bebo bebes bebe bebemos beben |
 bebí bebiste bebió bebimos bebieron | drink
cook cooking cooked | cocinar cocinando | cocino cocinas cocina cocinamos cocinan |
 cociné cocinaste cocinó cocinamos cocinaron | food
buy buying bought | comprar comprando | compro compras compra compramos compran |
 compré compraste compró compramos compraron | food drink text thing
sell selling sold | vender vendiendo | vendo vendes vende vendemos venden |
 vendí vendiste vendió vendimos vendieron | food drink thing
ask asking asked +for | pedir pidiendo | pido pides pide pedimos piden |
 pedí pediste pidió pedimos pidieron | food drink
serve serving served | servir sirviendo | sirvo sirves sirve servimos sirven |
 serví serviste sirvió servimos sirvieron | food drink
make making made | hacer haciendo | hago haces hace hacemos hacen |
 hice hiciste hizo hicimos hicieron | food
bring bringing brought | traer trayendo | traigo traes trae traemos traen |
 traje trajiste trajo trajimos trajeron | food drink text thing container
read reading - | leer leyendo | leo lees lee leemos leen |
 - | text
write writing wrote | escribir escribiendo | escribo escribes escribe escribimos escriben |
 escribí escribiste escribió escribimos escribieron | text
open opening opened | abrir abriendo | abro abres abre abrimos abren |
 abrí abriste abrió abrimos abrieron | opening container
close closing closed | cerrar cerrando | cierro cierras cierra cerramos cierran |
 cerré cerraste cerró cerramos cerraron | opening container
clean cleaning cleaned | limpiar limpiando | limpio limpias limpia limpiamos limpian |
 limpié limpiaste limpió limpiamos limpiaron | place opening thing
paint painting painted | pintar pintando | pinto pintas pinta pintamos pintan |
 pinté pintaste pintó pintamos pintaron | opening place
wash washing washed | lavar lavando | lavo lavas lava lavamos lavan |
 lavé lavaste lavó lavamos lavaron | thing opening
carry carrying carried | llevar llevando | llevo llevas lleva llevamos llevan |
 llevé llevaste llevó llevamos llevaron | container thing
find finding found | encontrar encontrando | encuentro encuentras encuentra encontramos encuentran |
 encontré encontraste encontró encontramos encontraron | thing text person
lose losing lost | perder perdiendo | pierdo pierdes pierde perdemos pierden |
 perdí perdiste perdió perdimos perdieron | thing text
break breaking broke | romper rompiendo | rompo rompes rompe rompemos rompen |
 rompí rompiste rompió rompimos rompieron | opening thing
use using used | usar usando | uso usas usa usamos usan |
 usé usaste usó usamos usaron | thing
look looking looked +for | buscar buscando | busco buscas busca buscamos buscan |
 busqué buscaste buscó buscamos buscaron | thing text person
visit visiting visited | visitar visitando | visito visitas visita visitamos visitan |
 visité visitaste visitó visitamos visitaron | place person
help helping helped | ayudar ayudando | ayudo ayudas ayuda ayudamos ayudan |
 ayudé ayudaste ayudó ayudamos ayudaron | person
call calling called | llamar llamando | llamo llamas llama llamamos llaman |
 llamé llamaste llamó llamamos llamaron | person
wait waiting waited +for | esperar esperando | espero esperas espera esperamos esperan |
 esperé esperaste esperó esperamos esperaron | person
listen listening listened +to | escuchar escuchando | escucho escuchas escucha escuchamos escuchan |
 escuché escuchaste escuchó escuchamos escucharon | media person
learn learning learned | aprender aprendiendo | aprendo aprendes aprende aprendemos aprenden |
 aprendí aprendiste aprendió aprendimos aprendieron | language
study studying studied | estudiar estudiando | estudio estudias estudia estudiamos estudian |
 estudié estudiaste estudió estudiamos estudiaron | language
speak speaking spoke | hablar hablando | hablo hablas habla hablamos hablan |
 hablé hablaste habló hablamos hablaron | language
play playing played | tocar tocando | toco tocas toca tocamos tocan |
 toqué tocaste tocó tocamos tocaron | instrument
play playing played | jugar jugando | juego juegas juega jugamos juegan |
 jugué jugaste jugó jugamos jugaron | game
see - saw | ver - | veo ves ve vemos ven |
 vi viste vio vimos vieron | thing person place
want - - | querer - | quiero quieres quiere queremos quieren |
 - | food drink thing
need - - | necesitar - | necesito necesitas necesita necesitamos necesitan |
 - | food drink thing text
have - - | tener - | tengo tienes tiene tenemos tienen |
 - | thing text container animal
know - - | conocer - | conozco conoces conoce conocemos conocen |
 - | person
love - - | querer - | quiero quieres quiere queremos quieren |
 - | person
sleep sleeping slept | dormir durmiendo | duermo duermes duerme dormimos duermen |
 dormí dormiste durmió dormimos durmieron |
run running ran | correr corriendo | corro corres corre corremos corren |
 corrí corriste corrió corrimos corrieron |
walk walking walked | caminar caminando | camino caminas camina caminamos caminan |
 caminé caminaste caminó caminamos caminaron |
work working worked | trabajar trabajando | trabajo trabajas trabaja trabajamos trabajan |
 trabajé trabajaste trabajó trabajamos trabajaron |
sing singing sang | cantar cantando | canto cantas canta cantamos cantan |
 canté cantaste cantó cantamos cantaron |
dance dancing danced | bailar bailando | bailo bailas baila bailamos bailan |
 bailé bailaste bailó bailamos bailaron |
swim swimming swam | nadar nadando | nado nadas nada nadamos nadan |
 nadé nadaste nadó nadamos nadaron |
cry crying cried | llorar llorando | lloro lloras llora lloramos lloran |
 lloré lloraste lloró lloramos lloraron |
smile smiling smiled | sonreír sonriendo | sonrío sonríes sonríe sonreímos sonríen |
 sonreí sonreíste sonrió sonreímos sonrieron |
travel traveling traveled | viajar viajando | viajo viajas viaja viajamos viajan |
 viajé viajaste viajó viajamos viajaron |
rest resting rested | descansar descansando | descanso descansas descansa descansamos descansan |
 descansé descansaste descansó descansamos descansaron |
"""
