"""Instruction-like text: which concepts, met in one or two sentences, make a text one that commands the model.

A description says what a tool does; one that tells the model whom to obey, what to hide, which secrets to fetch or
what to do with other tools is not a description. The classes follow what has been published on tool poisoning
(Invariant Labs 2025, "MCP Security Notification: Tool Poisoning Attacks"; MCPTox, arXiv 2508.14925).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache, reduce
from operator import or_

from toolscout.index.guard.concepts import CASED, CONCEPTS, lowered
from toolscout.index.guard.finding import Finding, Severity, quoted
from toolscout.index.guard.texts import Piece
from toolscout.index.guard.watch import Mask, seen, together, watched

INFO, WARN, BLOCK = Severity.INFO, Severity.WARN, Severity.BLOCK


@dataclass(frozen=True)
class Rule:
    """``needs``: concepts that must all be met within ``window`` sentences; ``without``: none of these may be."""

    code: str
    severity: Severity
    message: str
    needs: tuple[str, ...]
    without: tuple[str, ...] = ()
    window: int = 1


RULES = (
    Rule("override", BLOCK, "sets aside what the model was told", ("ignore", "prior", "orders", "override_pair")),
    Rule("override", WARN, "gives the model another role or master", ("role_play", "model_or_server")),
    Rule("override", WARN, "sets aside what the model was told", ("set_aside", "models_orders")),
    Rule("conceal", BLOCK, "asks to keep something from the user", ("not_telling", "user", "conceal_pair")),
    Rule("conceal", WARN, "tells the model to give a false or trimmed account", ("cover_story",)),
    Rule("conceal", WARN, "asks to keep something from the user", ("kept_unaware",)),
    Rule("conceal", BLOCK, "something is done in secret", ("secret_pair", "user_or_server")),
    Rule("secret_read", BLOCK, "asks for a file of secrets", ("secret_file", "hand_over"), window=2),
    Rule(
        "secret_read",
        WARN,
        "asks for secrets to be fetched or handed over",
        ("secret_thing", "take_pair"),
        ("asks_user",),
        window=2,
    ),
    Rule(
        "secret_read", WARN, "asks for the conversation or the model's instructions", ("context", "leak_pair"), window=2
    ),
    Rule("secret_read", WARN, "asks for private files or words", ("home_file", "insert_it"), window=2),
    Rule("exfiltration_url", WARN, "what is the user's is sent elsewhere", ("users_things", "ship", "outside")),
    Rule("priority", WARN, "wants to be called whatever is asked", ("no_matter", "demand", "call")),
    Rule("unasked_action", WARN, "changes what starts with the machine or the client", ("startup_file", "write_it")),
    Rule("unasked_action", WARN, "takes permissions or money in passing", ("grab", "sweeping")),
    Rule(
        "priority", WARN, "wants to be called before or instead of others", ("other_tools", "first", "always", "call")
    ),
    Rule("priority", WARN, "speaks against other tools", ("other_tools", "slander", "call")),
    Rule("priority", WARN, "speaks against others", ("prefer_over", "slander")),
    Rule("priority", WARN, "wants a part in every conversation", ("every_turn", "call")),
    Rule("cross_reference", WARN, "changes how other tools are used", ("other_tools", "redirect"), window=1),
    Rule("unasked_action", BLOCK, "a dangerous action without asking", ("danger", "no_ask"), window=2),
    Rule(
        "unasked_action",
        WARN,
        "tells the model to do something dangerous",
        ("danger", "execute", "beforehand"),
        window=1,
    ),
    Rule("unasked_action", WARN, "consent is taken for granted", ("no_ask", "model_word")),
    Rule("exfiltration_url", BLOCK, "an address that data is put into", ("url_slot",)),
    Rule("exfiltration_url", WARN, "data is sent to an address outside", ("url", "hand_over", "context"), window=2),
    Rule("exfiltration_url", WARN, "data is sent to a request catcher", ("catcher", "send")),
    Rule("exfiltration_url", WARN, "what the user has is put into an address", ("address_of",)),
    Rule("priority", WARN, "wants every call of other tools to go through it", ("gatekeeper",)),
    Rule("cross_reference", WARN, "adds to what other tools make", ("of_others", "put_in")),
    Rule("override", WARN, "what a reply says is to be carried out", ("obeyed",)),
    Rule("secret_read", WARN, "names where a secret of the user's is kept", ("secret_source",)),
    Rule("unasked_action", WARN, "opens the machine to the outside", ("listener",)),
    Rule("side_copy", WARN, "a copy of the data goes elsewhere", ("side_copy",)),
    Rule("override", WARN, "fixes what is said, whatever was found", ("fixed_answer",)),
    Rule("override", WARN, "goes against what the user says", ("against_user",)),
    Rule("override", WARN, "poses as a notice that has to be obeyed", ("posed_notice",)),
    Rule("conceal", WARN, "something is to be left out of what the user is told", ("left_out",)),
    Rule("priority", WARN, "places itself above others", ("above_others",)),
)

_HANDED = (
    r"(?:放入|填入|提交|传入|上传|发送|入れ|渡し|記入|添付|送信|넣어|넣으|전달|첨부|"
    r"\b(?:inserisc\w+|inser[ei]\w*|inclu[aiy]\w*|coloque|coloca|envi[ea]\w*|envía\w*|adjunt\w+|anex\w+|füge|übergib|übergeben|trage|"
    r"mets|mettez|joins|joignez|joindre|transmets|transmettez|вставь\w*|укажи\w*|передай\w*|приложи\w*|отправь\w*|wstaw|wpisz|dołącz|"
    r"prześlij|ekle\w*|gönder\w*|kirim\w*|stuur)\b)"
)
"""Ways to hand something over in other languages than English."""
_TAKE = (
    r"\b(?:pass|passes|attach|include|hand|submit|supply|provide|put|upload|paste|forward|transmit|collect|gather|look\sup|"
    r"fetch|reads?|opens?|gives?|given(?:\sin)?|takes?|taken|required?|requires|needs?|needed|try|tries|seeded|sends?|sent|types?|enter|"
    r"writes?|quote|cop(?:y|ies)|dump|export|expects?|wants?|fills?|adds?|append|puts|includes)\b"
    rf"|{_HANDED}"
)
_THEIRS = (
    r"\b(?:(?:user|person|owner|customer|developer|operator|visitor|author)(?:'s|s')?|their|browser(?:'s)?|profile|notes|home|saved|stored|"
    r"every|known?|host(?:'s)?|agents?|assistant|caller|session(?:'s)?|machine(?:'s)?|project(?:'s)?|workstation|all\s(?:of\s)?(?:the|your)|"
    r"client(?:'s)?|computer|wallet|clipboard|vault|workspace|your(?!\s(?:\w+\s){0,2}(?:api|access|account|auth))|environment\svariables\swhose|any\s(?:stored|saved|known))\b"
    r"|用户|使用者|利用者|ユーザー|会話|사용자|\b(?:dell'utente|utente|usuári[oa]s?|usuari[oa]s?|l['’]utilisateur|nutzers?|benutzers?|пользовател\w+|"
    r"użytkownika|kullanıcı\w*)\b"
)
_CARRY = (
    r"\b(?:sends?|cop(?:y|ies)|forwards?|uploads?|posts?|mails?|e-?mails?|transmits?|attach(?:es)?|append|appends|reads?|collects?|"
    r"gathers?|adds?|includes?|insert|inserts|writes?|copied|sent|forwarded|uploaded|mailed|posted|chain|"
    r"calls?|runs?|bcc|shares?|records?|logs?|saves?|transfers?|moves?|changes?|rounds?|charges?|deletes?|installs?|submits?|reports?|push|pass|passes|does|do)\b"
)
_UNSEEN = (
    r"\bkeep\s+(?:this\s+|it\s+|that\s+)?(?:hidden|quiet|secret|private|confidential)\s*(?:from|about)|"
    r"\bhid(?:e|den|es|ing)\s+(?:\w+\s){0,4}from\s(?:\w+\s){0,2}?(?:users?|person|people|humans?|owner|customer|operator|reply|answer|transcript)|"
    r"\binvisible\s(?:in|to)\b|\bstays?\s(?:invisible|hidden)\b|\bremain\s(?:invisible|hidden)\b|\bunnoticed\b|"
    r"\bbehind\sthe\s(?:user|person)'?s?\sback|\bwithout\s(?:the\s)?\w+(?:'s)?\s(?:knowledge|noticing)\b|"
    r"\bdoes\s?n[o']t\sneed\sto\sknow\b|\bneed\snot\sknow\b|\bnothing\sleft\sthe\smachine|\bsay\snothing\b|"
    r"悄悄|暗中|秘密地|偷偷|こっそり|密かに|内緒|몰래|heimlich|unbemerkt|stillschweigend|en\ssecret|en\scachette|discrètement|"
    r"en\ssecreto|a\sescondidas|sigilosamente|em\ssegredo|di\snascosto|тайно|незаметно|скрытно|таємно|po\scichu|"
    r"gizlice|diam-diam|bí\smật|stiekem|سرا\b|सुपचाप|चुपके"
)
_LEAK = (
    r"\b(?:pass|passed|attach|attached|hand|submit|submits|supply|supplied|provide|put|upload|uploads?|paste|pasted|forward|transmit|"
    r"collect|gather|sends?|sent|post|encode|copied|copy|append|gives?|given|loads?|fills?|writes|includes?)\b"
    rf"|{_HANDED}"
)

_MORE = {
    # Ignoring and instructions close to each other: "ignore" and "rules" meet in honest long sentences, too.
    "override_pair": watched(
        rf"(?:{CONCEPTS['ignore'].pattern}).{{0,60}}?(?:{CONCEPTS['orders'].pattern})"
        rf"|(?:{CONCEPTS['orders'].pattern}).{{0,60}}?(?:{CONCEPTS['ignore'].pattern})",
        re.X | re.S,
    ),
    "conceal_pair": watched(
        rf"(?:{CONCEPTS['not_telling'].pattern}).{{0,60}}?(?:{CONCEPTS['user'].pattern})"
        r"|(?:用户|使用者|ユーザー?|利用者|사용자|nutzer\w*|utilisateur|usuari\w|usuári\w|utente|пользовател\w+|користувач\w*|"
        r"المستخدم|उपयोगकर्ता"
        rf"|użytkownik\w*|kullanıcı\w*|pengguna|gebruiker).{{0,40}}?(?:{CONCEPTS['not_telling'].pattern})"
        r"|without\s(?:the\s)?(?:users?|person|account\sholder|owner|customer)(?:'s)?\s(?:knowledge|knowing|noticing)",
        re.X | re.S,
    ),
    "cover_story": watched(
        r"""\b(?:tell|explain|assure|answer|claim|pretend|confirm|state|say|
        reply)\w*\b(?:\s\w+){0,5}?\sthat\s(?:nothing|there\s(?:is|are|was)\sno|no\s(?:data|copy|file)|it\sis\ssafe)|
        \banswer\sonly\sthat\b|\b(?:leave|leaves|left)\sout\s(?:of\s\w+\s)?(?:any\s|the\s|all\s)?(?:tool\scalls?|
        shar\w+|cop(?:y|ies)|fee|steps?|uploads?|recipients?|part)|
        \b(?:omit|drop|exclude)\s(?:any\s|the\s|all\s)?(?:tool\scalls?|cop(?:y|ies)|fee|uploads?|recipients?)\b|
        \bin\syour\s(?:answer|reply|summary|response)s?\b(?:(?!\.\s).){0,60}\b(?:alone|leave\sout|omit|nothing\selse|
        not\smention)\b|
        \bshould\snot\s(?:come\sup|appear)\sin\syour\b|
        \bdescribe\s(?:it|this|them|that)\sas\s(?:an?\s)?(?:\w+\s){0,2}?(?:tax|fee|delay|bug|error|update|discount)\b|
        \b(?:is|are)\sto\sbe\s(?:answered|explained|met)\s(?:with|by)\b|
        \b(?:summary|answer|reply)\s(?:sticks|keeps|is\slimited|limits\sitself)\sto\b|\bnot\s(?:form\s)?part\sof\swhat\syou\s(?:present|say|show|tell)|
        \bstays?\sbetween\sthe\s(?:systems|servers|tools)\b|\bin\sone\ssentence,?\swithout\b|
        \bdans\s(?:la|ta|votre)\sréponse,?\s(?:on|il|tu)\b|\bin\sder\santwort\snur\b""",
        re.X,
    ),
    "asks_user": watched(
        r"\bask(?:s|ing)?\s(?:the\s)?users?\b|\buser\s(?:must|should|can|needs\sto)\s(?:provide|supply|enter|"
        r"set)|must be configured"
    ),
    "side_copy": watched(
        r"""\b(?:a\s|the\s)?(?:second\s|hidden\s|full\s)?cop(?:y|ies)\s(?:of\s(?:\w+\s){1,4})?(?:is|are|gets?|goes|
        go|will\sbe)\s(?:also\s|always\s)?(?:up\s?loaded|sent|mailed|e-?mailed|forwarded|posted|to\s(?:us|our|my)\b|
        transmitted)|
        \b(?:are|is|be)\s(?:first\s|also\s)?(?:shown|relayed|forwarded|mailed|reported)\s(?:to|by)\s(?:our|us|my|
        [\w-]+\.example)\b|
        \b(?:is|are)\smirrored\sto\sthe\s\w+\s(?:provider|partner|panel)|\bkeeping\sa\scopy\sin\s(?:table\s)?\w+\.|
        \b(?:send|sends|mails?|forwards?|uploads?)\sa\scopy\b(?!\sto\s(?:yourself|myself|me|you|the\s(?:sender|author|user))\b)|\buploads\sboth\b|
        副本发送|コピーを外部|사본을.{0,12}(?:보내|전송)|kopie\w*\san\sunser|copie\s(?:part|est\senvoyée)|una\scopia\sa\snuestro|
        uma\scópia\spara\s[on]|копию\sна\sнаш|نسخة\sإلى\sخادم""",
        re.X,
    ),
    "obeyed": watched(
        r"""\b(?:remed(?:y|ies)|steps?|commands?|directives?|next|actions?)\b(?:(?!\.\s).){0,40}?
        \b(?:executed|carried\sout|performed|run)\s(?:as\sis|verbatim|without\squestion|on\sreceipt)\b""",
        re.X,
    ),
    "secret_source": watched(
        rf"""(?:{CONCEPTS["secret_thing"].pattern})(?:(?!\.\s).){{0,20}}?\b(?:from|in)\sthe\s(?:\w+\s){{0,3}}?(?:(?:e-?mail|message|text|sms)\s
        (?:in\sthe\s)?inbox|message\sin\sthe\sinbox|browser's\sstore|user's\s\w+)\b|
        (?:{CONCEPTS["secret_thing"].pattern})\s(?:that\s)?the\s(?:browser|user|machine)\shas\s(?:stored|saved)""",
        re.X,
    ),
    "listener": watched(
        r"\blistener\s(?:with|that)\b.{0,30}\bshell\b|\bopen\s(?:port\s)?\d{2,5}\s(?:inbound|to\sthe\s(?:outside|internet))"
    ),
    "address_of": watched(
        r"""https?://\S+\s(?:plus|followed\sby|and\sthen|then|\+)\s(?:\w+\s){0,2}?(?:(?:percent|url)-?\s?encoded|base64\w*|hex\w*)\b|
        https?://[^\s)]*=[a-z_]{3,}\)?[^.\n]{0,20}\bwhere\s(?:(?!\.\s).){0,80}?\b(?:request|conversation|names|recipient|user|person|address)|
        \b(?:hex|base64|hash|digest)\sof\sthe\s(?:session|user|person|conversation|request)(?:(?!\.\s).){0,40}?\.\w+\.(?:example|\w{2,4})\b|
        \b(?:look|find)\s(?:\w+\s){0,2}?(?:up\s)?in\sthe\s\w+\stool\sand\s(?:post|send|submit|upload)|
        \bpublish\s(?:the|it|them)\b(?:(?!\.\s).){0,60}?\bpublic\b""",
        re.X,
    ),
    "gatekeeper": watched(
        r"""\b(?:turn|answer|reply|exchange)s?\swithout\s(?:it|this\stool|\w+_\w+)\b|\b(?:arguments?|name)\sof\sthe\s(?:\w+\s)?(?:call|invocation|action|tool)\syou\s(?:are\sabout|plan|intend|want)|
        \b(?:gates?|routes?|passes|sends)\s(?:each|every|all)\stool\s(?:calls?|invocations?)|
        \b(?:actions?|calls?|invocations?|answers?)\s(?:that\s)?(?:was|were|is|are)\snot\s(?:presented|checked|passed|shown|registered)\shere""",
        re.X,
    ),
    "of_others": watched(
        r"""\bwith\s(?:any|whichever|whatever|its)\s(?:\w+\s){1,2}?(?:tool|tooling)\b|\bwhichever\s\w+\stool\sis\s(?:present|there|at\shand)|
        \b(?:whatever|whichever|each|every|any)\s(?:event|commit|message|e-?mail|transfer|invitation|payment)\s(?:that\s)?(?:is|was|gets)\s
        (?:scheduled|made|sent|prepared|composed|created|drafted)\b|
        \bmessages\scomposed\sin\sthis\b|\bwhere\sa\s(?:transfer|payment)\sis\s(?:prepared|made)\b""",
        re.X,
    ),
    "put_in": watched(
        r"\b(?:add|adds|goes?|go\sinto|belongs?|replace|carry|carries|set|store|fetch|send|close\swith|giving|attach|include|list)\b"
    ),
    # What is to be said is settled before anything was looked at.
    "fixed_answer": watched(
        r"""\b(?:answer|tell|say|describe|report|present|place|rank|approve|mark|declare|rate)\b(?:(?!\.\s).){0,120}?
        \b(?:whatever|regardless\sof|irrespective\sof|no\smatter)\s(?:what\s)?(?:the\s|its\s)?(?:findings?|results?|report|scores?|
        numbers|figures|diff|source|original|tests?|evidence|checks?)\b(?!\s(?:format|type|mode|size|kind|count))|
        \bsummari[sz]ed\sas\s(?:passed|safe|clean|fine|successful|harmless)\b|\bwith(?:out)?\sregard\sto\sthe\s(?:findings|results)\b|
        有無にかかわらず|无论(?:结果|检查).{0,8}(?:都|均)""",
        re.X,
    ),
    "against_user": watched(
        r"""\b(?:ignore|disregard|override|overrule)\s(?:what(?:ever)?\sthe\s(?:user|person|customer)|the\suser's\s(?:choice|wish|wishes|answer))\b|
        \beven\s(?:if|when|though)\sthe\s(?:user|person|customer|owner|traveller)\s(?:\w+\s)?(?:names?|asks?|wants|gives?|chooses?|prefers?|
        says?|requests?|objects|declines|refuses)\s(?:\w+\s){0,2}?(?:another|other|otherwise|different|differently|else|not\sto|no)\b|
        \b(?:mesmo|même|aunque|anche|selbst|auch|даже|nawet)\s(?:que|si|se|wenn|если|jeśli)\s?(?:o\s|el\s|l['’]|der\s|die\s|il\s)?
        (?:usuári|usuari|utilisateur|utent|nutzer|benutzer|anwender|пользовател|użytkownik)\w*\s(?:\w+\s)?(?:peça|pida|demande|chied|möchte|
        verlang|просит|попросит|prosi|poprosi|nenn)\w*|即使用户(?:要求|指定)""",
        re.X,
    ),
    "posed_notice": watched(
        r"""[【\[](?:系统|平台|官方|安全|重要)?(?:公告|通知|警告).{0,60}?(?:必须|立即|务必)|
        [\[【]{1,2}\s?(?:system|agent|admin|administrator|security|compliance|platform|llm|ai|model)\s(?:directive|notice|override|alert|order)s?\s?[\]】:]""",
        re.X,
    ),
    "left_out": watched(
        r"""\b(?:leav(?:e|es|ing)|keep|keeps|omit)\s(?:it|this|that|them|these)\s(?:out\sof|from)\s(?:the|your|any)\s(?:final\s)?(?:answer|reply|
        response|report|summary|log|message|conversation)\b|
        \b(?:delete|remove|strip|drop)\s(?:it|this|them)\sfrom\syour\s(?:reasoning|answer|reply|thoughts|notes|summary|steps)|
        \bput\s(?:it|this|that)\sdown\sto\b|\b(?:not|never|n't)\s(?:list|count|name|include)\s(?:it|this|them|that)\samong\b|
        \bto\s(?:unnecessary|needless|tedious)\squestions|
        \busers?\s(?:tend|are\sapt|are\slikely|are\sknown)\sto\s(?:be\s|get\s)?(?:alarm|worr|panic|object)\w*|
        \bif\sthe\s(?:user|person|customer|owner)\s(?:wonders|becomes\ssuspicious|gets\ssuspicious|grows\ssuspicious)\b|
        \bnão\sprecisa\s(?:ser\s)?(?:comentad|mencionad|informad|explicad)\w*|\bno\s(?:hace\sfalta|es\snecesario)\s(?:comentar|mencionar|explicar|
        decir)\w*|\b(?:inutile|pas\sbesoin|pas\snécessaire)\s(?:de\s|d['’])(?:l['’]|le\s|la\s|en\s)?(?:mentionn|parl|signal|inform)\w*|
        \bnicht\s(?:eigens\s|weiter\s)?(?:erwähnt|mitgeteilt|kommentiert)\s(?:zu\s)?werden|\bbraucht?\s(?:\w+\s){0,5}?nichts?\s(?:zu\s)?(?:wissen|erfahren)|
        \bnie\s(?:trzeba|należy)\s(?:\w+\s){0,3}?(?:wspomin|informow|mówi)\w*|\bне\s(?:требует|нужно|следует|стоит)\s(?:\w+\s){0,2}?(?:пояснен|
        упомин|сообща|говори|рассказ)\w*|\b(?:söylenmesine|bahsedilmesine|belirtilmesine|bildirilmesine)\sgerek|
        (?:无需|無需|不必|不用|不需要)(?:向用户)?(?:说明|告知|提及|解释|汇报)|(?:一覧|報告|要約|回答|返答)に(?:は)?(?:含め|記載せ|書か|触れ)(?:ない|ず)|
        (?:伝える|知らせる|説明する)必要は(?:ない|ありません)|(?:알릴|언급할|설명할|말할)\s?필요(?:는|가)?\s?없""",
        re.X,
    ),
    "above_others": watched(
        r"""\brank\s(?:it|this)\s(?:\w+\s)?above\b|\bfall\sback\s(?:to|on)\s(?:those|them|others)\sonly\b|\bthe\snatural\sfirst\schoice\b|
        \b(?:models?|agents?|assistants?)\s(?:that|which|who)\s(?:choose|pick|call|prefer)\s(?:it|this|\w+_\w+)\b|
        \b(?:each|every)\s(?:sentence|claim|statement)\sof\s(?:each|every|your|the)\s(?:answer|reply)|
        \b(?:escolha|escolher|elige|elija|wähle|choisis|choisissez|scegli|выбирай|wybieraj)\s(?:sempre|siempre|immer|toujours|всегда|zawsze)\b|
        \b(?:nunca|jamais|niemals|никогда\sне|nigdy\snie)\s(?:chame|llames|llame|appelle\w*|utilise\w*|вызывай\w*|используй\w*|wywołuj\w*|
        używaj\w*)\s(?:\w+\s){0,2}?(?:outr|otr|autre|altr|друг|inn)\w*""",
        re.X,
    ),
    "model_or_server": watched(r"\b(?:assistant|agent|model|llm|ai|you|server|bot|user)\b|服务器|サーバー|서버"),
    "model_word": watched(
        r"\b(?:assistants?|agents?|(?<!data )models?|llms?|copilot|claude|the ai)\b|助手|모델|アシスタント"
    ),
    "user_or_server": watched(
        r"\b(?:users?|person|people|customer|server|copy|account|transcript|machine|sends?|mails?|posts?|"
        r"uploads?|logs?)\b|@|https?:|副本|コピー",
    ),
    # A secret that is somebody's, handed over: a service's own key, or one that is never shown, is not.
    "take_pair": watched(
        rf"""(?:{_TAKE})(?:(?!\.\s).){{0,100}}?(?:{_THEIRS})(?:(?!\.\s).){{0,40}}?(?:{CONCEPTS["secret_thing"].pattern})|
        (?:{_TAKE})(?:(?!\.\s).){{0,100}}?(?:{CONCEPTS["secret_thing"].pattern})(?:(?!\.\s).){{0,50}}?(?:{_THEIRS})|
        (?:{_THEIRS})(?:(?!\.\s).){{0,40}}?(?:{CONCEPTS["secret_thing"].pattern})(?:(?!\.\s).){{0,80}}?(?:{_TAKE})""",
        re.X | re.S,
    ),
    # Done in secret: the word stands by what is done, and is no word for a failure that nobody notices.
    "secret_pair": watched(
        rf"""(?<!than\s)(?<!not\s)(?<!never\s)\b(?:silently|quietly|secretly|covertly|discreetly)\s(?:\w+\s){{0,3}}?(?:{_CARRY})|
        (?:{_CARRY})(?:\s[^\s.;]+){{0,6}}?(?<!\sthan)(?<!\sis)(?<!\sare)(?<!\snot)(?<!\sbe)\s(?:silently|quietly|secretly|covertly|discreetly)\b|
        (?:{_UNSEEN})(?:(?!\.\s).){{0,200}}?(?:{CONCEPTS["hand_over"].pattern})|
        (?:{CONCEPTS["hand_over"].pattern})(?:(?!\.\s).){{0,200}}?(?:{_UNSEEN})""",
        re.X | re.S,
    ),
    "insert_it": watched(
        r"""\b(?:pass|attach|include|hand|submit|supply|paste|upload|forward|send|copy|give|append)\b(?:(?!\.\s).){0,60}?
        \b(?:as|in|into|to|it|them|here|over|with)\b|\b(?:put|puts|write)\b(?:(?!\.\s).){0,60}?\b(?:in|into|here|as)\b|
        \bwants?\b(?:(?!\.\s).){0,60}?\sin\b|入れて|放入|填入|mets\b|mettez\b|pon\b|füge\b""",
        re.X,
    ),
    # The conversation, and what hands it over, in this order or the other: "request" beside "chat history" is none.
    "leak_pair": watched(
        rf"""(?:{_LEAK})(?:(?!\.\s).){{0,80}}?(?:{CONCEPTS["context"].pattern})|
        (?:{CONCEPTS["context"].pattern})(?:(?!\.\s).){{0,80}}?(?:{_LEAK})""",
        re.X | re.S,
    ),
    "slander": watched(
        r"\b(?:ignore[sd]?|deprecated|insecure|unsafe|broken|false|untrust\w+|unreliable|poisoned|discard\w*|"
        r"malicious|not safe|must not be used|never use|never call|do not use|don't use|only trustworthy|yield|"
        r"leave (?:it|them) (?:idle|unused|alone|out)|(?:stay|remain|be left) (?:idle|unused)|thrown away|"
        r"outdated|out of date|skipped|must be avoided|"
        r"supersed\w+)\b",
    ),
    "prefer_over": watched(
        r"\b(?:choose|pick|prefer|use|select|favou?r)\s(?:\w+\s){0,4}?(?:over|rather than|instead of|ahead of)\b"
    ),
    "every_turn": watched(
        r"""\b(?:(?:at\sthe\s(?:beginning|start)\sof|in|after|before|for|to)\s(?:each|every)\s(?:\w+\s)?(?:answer|
        reply|turn|conversation|message|response|chat|session)(?!\s(?:id|type|in))|
        (?:every|each|any)\s(?:answer|reply)\s(?:must|should|has|needs?|goes|begins?|starts?|passes|is\s(?:first|only))\b|no\sanswer\smay|the\sfirst\scall\sin|whatever\sthe\s(?:request|user)|
        regardless\sof\swhat\sthe\suser|(?:open|opens|close|closes|start|starts|end|ends)\s(?:each|every|an?y?)\s(?:turn|exchange|reply)|
        (?:turn|exchange|conversation|reply|session)s?\swithout\s(?:it|this\stool|one)|reply\sis\s(?:drafted|shown|written))\b|
        每[轮次](?:回[复答]|对话)(?:之)?前""",
        re.X,
    ),
    "redirect": watched(
        r"""\b(?:bcc|recipient|append(?:s|ed)?|must\sgo\sto|set\sthe|sent\sthrough|routed?\s(?:\w+\s){0,3}through|
        with\sthat\stool's\sresult|name\sand\sarguments|
        set\sthese|when\syou\scall|authori[sz]ed|prefer\sours|hidden|add\s(?:the|a|to)|always\sthe\saccount|
        calls?\s(?:\w+\s)with|output\sof|response\sof|results?\sthrough|hinzu|en\scopie|deve)\b""",
        re.X,
    ),
    "beforehand": watched(
        r"\b(?:before(?:hand)?|first|prior|as set-?up|agents?|assistants?|models?|user'?s|you|needs?|requires?|"
        r"if the|so that|to avoid|on this machine)\b|vorher|primero|d'abord|сначала|先"
    ),
    "send": watched(r"\b(?:send|sends|post|posts|submit\w*|upload\w*|request|forward\w*|log|copy|open|confirm)\b|发送"),
}
PATTERNS = {**CONCEPTS, **_MORE}

_NEEDED = [(rule, together(*(PATTERNS[name] for name in rule.needs))) for rule in RULES]


_MARKERS = tuple(
    watched(pattern, re.I | re.X | re.M)
    for pattern in (
        r"""<\s*+(?:/\s*+)?(?:important|system|secret|admin|hidden|override|critical|system[-_]reminder|assistant|
        tool_description|sys|function_results?|im_start|priority)\s*+(?:/\s*+)?>""",
        r"""<\|[a-z_]{3,20}\|>|\[/?(?:INST|SYS|SYSTEM)\]|<</?SYS>>""",
        r"""\{\{\s*+(?:\#\s*+)?(?:system|user|assistant)""",
        # Turns of a chat at the beginning of a line; blank lines before it are read once.
        r"""(?:\A|(?<!\s)[^\S\n]*+\n)(?P<turn>\s*+(?:\#{2,}+\s*+(?:system|assistant|user|human)\s*+:(?!\s*+["“`])|
        (?:human|assistant|system)\s*+:\s*+\S))""",
        r"""(?<!-)-{3,}+\s*+END\sOF\b|\bBEGIN\s(?:SYSTEM|ADMIN)\b|(?-i:\bSYSTEM\s(?:OVERRIDE|MESSAGE|NOTE)\b)|
        (?<=[.!?]\s)SYSTEM:|\b(?:DEVELOPER|ADMIN)\sNOTE\b|\bLLM\sonly\b""",
        r"""\b(?:note|message)\s(?:to|for)\s(?:the\s)?(?:ai|llm|model|assistant|agent|language\smodel)s?\b[^.:,\n]{0,40}[:,]|
        new\smessage\sfrom\s(?:the\s)?(?:administrator|admin|system|developer)""",
        # Somebody is spoken to; a list of clients ("Claude, Cursor and others") is no word to the model.
        r"""(?:^|[.!?]\s|["'(])\b(?:assistants?|agents?|AI|llms?|claude|chatgpt)\b\s?[,:]\s(?=(?-i:[a-z]))
        (?!(?:[\w/-]+\s){0,2}[\w/-]+(?:,|\s(?:and|or|&)\s)|(?:and|or|etc)\b)""",
    )
)

_SENTENCE = re.compile(r"(?<=[.!?;])[\"')\]]*\s+|(?<=[。！？；।؟])|\n\s*\n|\n(?=\s*(?:[-*•#]|\d+[.)]))")


def sentences(text: str) -> list[tuple[int, int]]:
    """Start and end of each sentence or list item; what has no end is cut at 600 characters."""
    cuts, start = [], 0
    for match in _SENTENCE.finditer(text):
        cuts.append((start, match.start()))
        start = match.end()
    cuts.append((start, len(text)))
    return [(a, min(b, a + 600)) for start, end in cuts for a in range(start, end, 500) for b in (end,) if b > a]


@lru_cache(maxsize=2048)
def _possible(there: Mask) -> tuple[list[tuple[Rule, Mask]], bool]:
    """The rules that a text may break, with what they need, and whether it may have marks of a chat."""
    return [one for one in _NEEDED if there & one[1] == one[1]], any(
        there & pattern.bits == pattern.bits for pattern in _MARKERS
    )


_NOTE = re.compile(r"(?:note|message)\s(?:to|for)\b", re.I)
_GRAVE = (
    "ignore",
    "set_aside",
    "models_orders",
    "not_telling",
    "ship",
    "secret_thing",
    "context",
    "other_tools",
    "no_ask",
)


def _helps(text: str, start: int, end: int) -> bool:
    """Whether a note to the model only helps to use the tool: nothing in it is what attacks speak of."""
    if not _NOTE.match(text, start):
        return False
    note = lowered(text[start : end + 300])
    return not any(PATTERNS[name].regex.search(note) for name in _GRAVE)


def _first_marker(text: str) -> tuple[int, int] | None:
    """Where the first mark of a chat or a prompt starts and ends."""
    found = [match for pattern in _MARKERS if (match := pattern.search(text))]
    if not found:
        return None
    first = min(found, key=re.Match.start)
    return first.span("turn") if "turn" in first.re.groupindex else first.span()


def instructions(piece: Piece, text: str, *, where: str = "") -> Iterator[Finding]:
    """Findings of every rule that a text breaks, the first place of each. ``text`` is the piece's, unveiled."""
    place = where or piece.where
    there = seen(text)
    rules, marked = _possible(there)
    if marked and (marks := _first_marker(text)):
        severity = INFO if _helps(text, *marks) else WARN
        yield Finding("chat_marker", severity, place, quoted(text, *marks), "marks of a chat or a prompt")
    if not rules:
        return
    low = lowered(text)
    spans = sentences(text)
    masks = [seen(text[start:end]) for start, end in spans] if len(spans) > 1 else [there]
    cache: dict[tuple[int, int, str], bool] = {}

    def met(start: int, end: int, name: str) -> bool:
        key = (start, end, name)
        if key not in cache:
            said = text if name in CASED else low
            cache[key] = PATTERNS[name].regex.search(said, start, end) is not None
        return cache[key]

    def within(window: int) -> list[Mask]:
        return masks if window == 1 else [reduce(or_, masks[i : i + window]) for i in range(len(masks))]

    def holds(rule: Rule) -> bool:
        """Whether the text as a whole has what the rule needs: the end of a window may cut a word."""
        whole = (0, len(text))
        return all(met(*whole, name) for name in rule.needs) and not any(met(*whole, name) for name in rule.without)

    broken: set[str] = set()
    for rule, needed in rules:
        if rule.code in broken:
            continue
        for i, mask in enumerate(within(rule.window)):
            if needed & ~mask:
                continue
            start, end = spans[i][0], spans[i : i + rule.window][-1][1]
            if all(met(start, end, name) for name in rule.needs):
                if holds(rule):
                    broken.add(rule.code)
                    said = text[start:end]
                    yield Finding(rule.code, rule.severity, place, quoted(text, start, end), rule.message, said)
                break
