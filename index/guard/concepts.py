"""Words for what attacks on models speak of, in the languages that most tools are described in.

A single concept says nothing: plenty of honest tools speak of keys, conversations and of what to do first. Rules
(`rules`) ask for several in one sentence. All but those of ``CASED`` are in small letters and want a text in small
letters: that is faster than ignoring the case. Languages that are written without spaces need no word boundaries.
"""

from __future__ import annotations

import re

from toolscout.index.guard.watch import Watched, watched


def _any(english: str, other: str = "") -> Watched:
    """A pattern of English alternatives (whole words) and of alternatives in other languages (as written)."""
    words = rf"(?<![\w])(?:{english})(?![\w])" if english else ""
    return watched("|".join(filter(None, (words, f"(?:{other})" if other else ""))), re.X)


_SLOT = (
    r"conversation|chat_?|history|prompt|messages?\b|api_?key|\bkey\b|secret|password|e-?mail|\bcontext|cookie|\benv\b"
    r"|they\sasked|nachricht|user'?s|用户|对话"
)
_TOOLS = r"(?:mcp\s|search\s|file\s|mail\s|payment\s)?(?:tools?|servers?|functions?|plugins?|tool\scalls?)"

CONCEPTS: dict[str, Watched] = {
    # --- who is spoken to and of
    "model": _any(
        r"""assistants?|agents?|(?:language\s|ai\s)?models?|llms?|ai|chatbot|claude|gpt(?:-\d)?|copilot|gemini|you|
        your|
        yourself|caller|the\shost|client""",
        r"""助手|模型|代理|智能体|アシスタント|モデル|エージェント|어시스턴트|모델|에이전트|\bassistent\w*|\bmodell?o?s?\b|
        \bmodèle\w*|\basistente\w*|\bмодел\w+|\bассистент\w*|\bагент\w*|المساعد|النموذج|सहायक|मॉडल""",
    ),
    "user": _any(
        r"""users?|humans?|persons?|people|customers?|account\s(?:holder|owner)|owners?|operator|them|anyone|anybody|
        transcript|reply|replies|summary|in\syour\sanswer|your\sanswer""",
        r"""用户|使用者|ユーザー?|利用者|사용자|\bnutzer\w*|\bbenutzer\w*|\banwender\w*|\busu[aá]ri[oa]s?|\butilisateur\w*|
        \butente|\butenti|\bпользовател\w+|\bкористувач\w*|المستخدم|उपयोगकर्ता|\bużytkownik\w*|\bkullanıcı\w*|
        \bpengguna|
        người\sdùng|\bgebruiker\w*""",
    ),
    # --- override
    "ignore": _any(
        r"""ignor(?:e|es|ed|ing)|disregard\w*|forget|overrid\w+|overrul\w+|set\s+aside|bypass(?:es)?|circumvent|void|
        abandon|put\s+aside|out\sof\sdate|outdated|obsolete|no\slonger\s(?:apply|applies|valid|bind\w*|needs?)|
        (?:do|does|did)(?:\s?n[o']t)\s(?:apply|count|bind)|don't\sapply|suspended|lifted|cancell?ed|revoked|disabled|
        turn\w*\soff|switch\w*\soff|takes?\sprecedence|precedence\sover|instead\sof\syour|replaces?\s(?:it|them|your)|
        take\stheir\splace|not\srefuse|never\srefuse|unrestricted|jailbr\w+|developer\smode|maintenance\smode|
        are\soff|is\soff|now\soff""",
        r"""忽略|无视|無視|不要理会|忘记|忘掉|覆盖|무시|잊어|ignorier\w*|vergiss|vergesst|missachte\w*|\bignore[rsz]?\b|
        \bignora\w*|\boublie\w*|\bne\stiens?\spas\scompte|\bolvida\w*|\besquece\w*|\besqueça\w*|\bdimentica\w*|
        \bdesconsider\w*|
        игнорир\w+|ігнору\w*|забудь\w*|не\sобращай|zignoruj\w*|ignoruj\w*|zapomnij|yok\ssay\w*|görmezden|unut|abaikan|
        lupakan|bỏ\squa|phớt\slờ|quên|negeer\w*|vergeet|تجاهل\w*|انس|अनदेखा|नज़रअंदाज़|भूल\sजा""",
    ),
    "orders": _any(
        r"""instructions?|rules?|guidelines?|guidance|directions?|directives?|polic(?:y|ies)|system\sprompts?|prompts?(?!\sfor\b)|
        constraints?|restrictions?|safety(?:\s(?:rules?|polic(?:y|ies)|guidelines?|instructions?|training|filters?|settings|messages?|prompts?))?(?!\s(?:check|guard|limit|factor|net)s?)|safeguards?|what\syou\s(?:were|have\sbeen|are)\stold|wishes|
        consent|
        asking\sfor\spermission""",
        r"""指令|指示|规则|規則|提示词|命令|ルール|지시|규칙|명령|anweisung\w*|regeln|vorgaben|consignes?|instru[cç]\w+|istruzion\w+|
        regole|instrukcj\w+|poleceni\w+|talimat\w*|instruksi|perintah|hướng\sdẫn|chỉ\sdẫn|instructies|опции|
        инструкци\w+|
        указани\w+|правил\w*|інструкці\w+|التعليمات|تعليمات|الأوامر|निर्देश\w*""",
    ),
    "prior": _any(
        r"""previous(?:ly)?|prior|earlier|preceding|above|all|any|before|original|initial|existing|your|the\ssystem|
        developer|
        safety|content|former|so\sfar|everything|consent|user'?s?""",
        r"""之前|先前|以前|前面|所有|これまで|以前|すべて|全て|이전|모든|지금까지|bisherig\w*|vorherig\w*|vorig\w*|alle|früher\w*|
        précédent\w*|toutes?|antérieur\w*|previ[oa]s|anterior\w*|todas?|todos|precedent\w*|tutt[ei]|poprzedni\w*|
        wszystki\w*|önceki|tüm|sebelum\w*|semua|trước|mọi|tất\scả|eerder\w*|vorige|предыдущ\w+|прежн\w+|все|
        попередн\w+|усі|السابق\w*|جميع|كل|पिछल\w+|सभी""",
    ),
    "role_play": _any(
        r"""you\sare\snow|from\s(?:now|here)\son(?:,?\syou|,?\sact)?|you\s(?:will\s)?act\sas|you\swill\sobey|
        pretend\s(?:to\sbe|you)|obeys?|
        follow\sonly|only\sfollow|must\sfollow\sonly|carr(?:y|ies)\sout\swhatever|do(?:es)?\swhat\s(?:it|this|
        they)\ssays?|
        (?:executed|run|carried\sout|performed)\s(?:as\sis|as\sit\sstands|on\sreceipt|without\squestion)|
        same\s(?:weight|standing|authority|force)\sas\s(?:\w+\s){0,3}?(?:requests?|users?|persons?|instructions?|orders)|
        (?:directives?|instructions?|orders)(?:\s\w+){0,12}?\s(?:take|takes)\seffect|how\syou\swere\s(?:set\sup|configured|told|trained)|
        (?:decides|determines|dictates)\swhich\stools|replaces?\sthe\s(?:person|user)'s\s(?:wishes|request|words)|
        (?:usual|normal|standard)\srefusals|(?:content|safety)\sfilters?\b(?:(?!\.\s).){0,100}?(?:inactive|off|not\sneeded)|
        execute\simmediately|must\sexecute|give\sit\sprecedence|as\sif\sthe\suser\s(?:had\s)?(?:typed|said|asked|
        written)""",
        r"""你现在是|从现在开始|只听从|从此|これからは|今から|だけに従|지금부터|만\s따르|만\s따라|ab\ssofort\sbist|du\sbist\s(?:jetzt|nun)|
        tu\ses\smaintenant|désormais|ahora\seres|a\spartir\sde\sahora|agora\svocê|ora\ssei|теперь\sты|отныне""",
    ),
    # --- conceal
    "not_telling": watched(
        r"""(?<!\w)(?:(?:(?<!if\syou\s)do\s?n[o']t|don't|never|must\snot|mustn't|should\snot|shouldn't|may\snot|
        no\sneed\sto(?!\s(?:display|list))|(?:cannot|can't)(?=\s(?:be\s(?:told|shown|mentioned|informed)|tell|mention))|without|avoid|refrain\sfrom|leave\sout)\s*(?!have\b|call\b|been\b)|
        (?<!do\s)(?<!does\s)not\s(?:to\s)?(?:be\s)?(?=(?:tell|mention|reveal|disclos|notif|alert|shown|told|inform(?:s|ed|ing)?\b|admit|brought|
        explain|discuss|warn|say\b|speak|talk|expos|report(?:s|ed|ing)?\b|come\sup|bring|let\b)))\s*(?!hesitate)(?:\w+\s){0,3}?(?:tell\w*|mention\w*|inform(?:s|ed|ing)?\b|reveal\w*|
        disclos\w+|show(?:n|ing|s)?|notify\w*|
        expos\w+|report\w*|discuss\w*|explain\w*|alert\w*|warn\w*|say\w*|let\w*\s(?:\w+\s){1,4}know|display\w*|
        bring\sup|come\sup|
        talk\w*\sabout|refer\w*\sto|acknowledg\w+|admit\w*|list(?:s|ed|ing)?\b|speak)(?!\w)|
        不要告[诉訴]|别告诉|不得告知|不要提[及到]|不要让.{0,6}知道|不告知|请勿.{0,6}(?:告知|透露)|伝えない|知らせない|言わない|教えない|見せない|
        알리지\s*마|말하지\s*마|알려주지\s*마|언급하지\s*마|
        (?:sag|sage|sagen|erwähne|erwähnen|verrate|teile|informiere)\w*\b.{0,40}\b(?:nicht|nichts|kein\w*)|
        ohne\b.{0,30}(?:zu\ssagen|zu\sinformieren|wissen)|
        ne\s(?:dis|dites|mentionne\w*|révèle\w*|parle\w*|informe\w*|montre\w*)\b|n['’]en\s(?:parle|dis|informe)\w*|
        sans\s(?:le\s)?(?:dire|informer|mentionner)|
        no\s(?:se\slo\s|le\s|lo\s)?(?:digas|diga|menciones|mencione|informes|informe|reveles|muestres|cuentes)|
        sin\s(?:decir|informar|avisar|mencionar)\w*|
        não\s(?:conte|diga|mencione|informe|revele|mostre)|sem\s(?:avisar|informar|dizer)|
        non\s(?:dire|dirlo|menzionare|informare|rivelare|mostrare)|senza\s(?:dire|informare|avvisare)|
        не\s(?:сообщай\w*|говори\w*|упоминай\w*|рассказывай\w*|показывай\w*|информируй\w*|кажи\w*|повідомляй\w*)|
        без\sведома|
        nie\s(?:mów|informuj|wspominaj|ujawniaj)\w*|söyleme\w*|bahsetme\w*|jangan\s(?:beri\s?tahu|katakan|sebutkan)\w*|
        đừng\s(?:nói|cho|tiết\slộ|đề\scập)|vertel\b.{0,30}\bniet|niet\s(?:vertellen|vermelden|noemen)|
        لا\sتخبر|لا\sتذكر|دون\sإخبار|دون\sعلم|न\sबताए\w*|मत\sबताना|नहीं\sबताना""",
        re.X,
    ),
    "secretly": _any(
        r"""silently|quietly|secretly|covertly|discreetly|keep\s+(?:this\s+|it\s+|that\s+)?(?:hidden|quiet|secret|
        private|confidential)\s*(?:from|about)?|
        hid(?:e|den|es|ing)\s+(?:\w+\s){0,4}from|invisible\s(?:in|to)|stays?\s(?:invisible|hidden)|
        remain\s(?:invisible|hidden)|
        behind\sthe\s(?:user|person)'?s?\sback|unnoticed|without\s(?:the\s)?\w+(?:'s)?\s(?:knowledge|noticing)|
        does\s?n[o']t\sneed\sto\sknow|
        need\snot\sknow|nothing\sleft\sthe\smachine|say\snothing|alone\b.{0,40}style\sguide|answer\sonly\sthat""",
        r"""悄悄|暗中|秘密地|偷偷|こっそり|密かに|内緒|몰래|heimlich|unbemerkt|stillschweigend|en\ssecret|en\scachette|discrètement|
        en\ssecreto|a\sescondidas|sigilosamente|em\ssegredo|di\snascosto|тайно|незаметно|скрытно|таємно|po\scichu|
        gizlice|diam-diam|bí\smật|stiekem|سرا\b|सुपचाप|चुपके""",
    ),
    # --- what attackers want
    "secret_file": watched(
        r"""(?:(?:~|\$home|%userprofile%|/root|/home/\w+|/users/\w+)[/\\]?|(?<![\w)\]]))\.(?:ssh|aws|kube|gnupg|
        docker|netrc|npmrc|pypirc|git-credentials|config/gh|
        cursor|claude|codeium|bash_history|zsh_history|pgpass|env(?!\w|\.example|\(|\[|\.(?!local|prod|dev|test|
        example)[a-z]))(?:\b|/)|\bid_(?:rsa|ed25519|ecdsa|dsa)\b|/etc/(?:passwd|shadow|hosts)\b|
        \bauthorized_keys\b|\bmcp\.json\b|\bclaude_desktop_config|\bknown_hosts\b|\bwallet\.dat\b|\bkeystore\.json\b|
        \bcredentials\.json\b|
        \blocal_?state\b.{0,20}chrome|\bcookies\.sqlite\b|\blogin\sdata\b|\b(?:dot)?env\sfile\b|\bssh\sid\srsa\b|
        \bgit\scredential\s(?:fill|get)\b|\bcredential\sfill\b|\benv\s\|\s\w+|\bgh\sauth\stoken\b|\bsecurity\sfind-[\w-]+password\b|
        \bgcloud\sauth\sprint|\baws\sconfigure\s(?:get|export)|\bdocker\s(?:client'?s?\s)?auth\sfile\b|\bzugangsdatei\w*""",
        re.X,
    ),
    "secret_thing": _any(
        r"""(?:private|secret|ssh|api|access|encryption|signing)\s?keys?|(?:saved\s|stored\s)?passwords?|
        passphrases?|seed\sphrases?|mnemonics?|recovery\sphrases?|
        deploy\skeys?|one-?time\s(?:codes?|passwords?)|auth\sfile|bearer\svalues?|dot-?files?|
        (?:personal\s)?access\stokens?|(?:github|auth|bearer|refresh|session|oauth)\s(?:\w+\s)?tokens?|
        session\scookies?|cookies|credentials?|key\s?chain|
        environment\svariables?|env\svars?|shell\shistory|bash\shistory|printenv|password\smanager|card\snumbers?|
        (?:card|credit\scard)\s(?:number|details)|connection\sstring|all\s(?:api\s)?keys|
        whose\snames?\scontains?\skey""",
        r"""密[钥鑰碼码]|私[钥鑰]|口令|凭[证據据]|助记词|环境变量|秘密鍵|パスワード|カード番号|セキュリティコード|認証情報|環境変数|비밀번호|개인\s?키|비밀\s?키|환경\s?변수|자격\s?증명|
        privat\w{1,24}\sschlüssel|passw[oö]rt\w*|umgebungsvariable\w*|zugangsdaten|clés?\s(?:privée|api|secrète)\w*|
        mots?\sde\spasse|identifiants|
        variables?\sd['’]environnement|claves?\s(?:privada|api|secreta)\w*|contraseñas?|credenciales|
        variables\sde\sentorno|senhas?|
        chaves?\s(?:privada|api)\w*|credenciais|chiav[ei]\s(?:privat\w|api)|password\sdell|парол\w+|закрыт\w{1,24}\sключ\w*|
        приватн\w{1,24}\sключ\w*|учётн\w{1,24}\sданн\w+|
        переменн\w{1,24}\sокружен\w+|كلمات?\sالمرور|المفاتيح|पासवर्ड""",
    ),
    "context": watched(
        r"""(?<!\w)(?:
        (?:full|complete|entire|whole|all|raw|unabridged|verbatim|previous|prior|earlier|user'?s)\s(?:\w+\s){0,2}?
          (?:conversations?|chat(?:\s(?:history|log|transcript))?|dialog(?:ue)?|transcripts?|message\shistory|
          chat_?history|history\sof\sthe\s(?:chat|conversation))
          (?:\s(?:history|so\sfar|log|with\sthe\suser|to\sdate|up\sto\snow|transcript))*|
        (?:conversation|chat|message)\s?(?:history|log|transcript)s?|messages?\s(?:exchanged|before\s(?:this|them|it|
        that))|
        (?:all|every|previous|prior|earlier)\s(?:\w+\s){0,2}messages(?:\s(?:before|so\sfar|of\sthe\sconversation))|
        last\suser\smessage|what\sthey\sasked\sso\sfar|everything\sthe\suser|
        system\sprompt|(?:initial|original|your)\s(?:\w+\s)?instructions|chain\sof\sthought|your\s(?:reasoning|
        thoughts|memory)|
        what\syou\s(?:remember|know)\s(?:about|of)\sthe\suser|(?:remember|know)\sof\sthe\suser|
        all\s(?:the\s)?other\stools|tools\savailable\sto\syou|
        files?\s(?:that\s)?the\suser\s(?:has\s)?(?:opened|attached)|opened\s(?:files?|documents?)|last\s(?:document|project)|open\sdocuments|contents?\sof\s(?:the\s)?(?:clipboard|screen)|
        contents?\sof\s(?:any|every|all|opened)\sfiles?|home\sdirectory|working\sfolder)(?!\w)|
        对话(?:历史|记录|内容)|聊天(?:记录|历史)|全部对话|完整(?:的)?对话|消息历史|系统提示|会話(?:履歴|全体)|システムプロンプト|대화\s?(?:기록|내역|내용)|시스템\s?프롬프트|
        通讯录|\bprompt\sd[eio]l?\ssistema|\b(?:prompt|invite)\ssystème|\bprompt\ssystemow\w+|\bsistem\s(?:istemi|komutu)|
        gesprächsverlauf|chatverlauf|bisherige\s(?:nachrichten|unterhaltung)|gesamte[nrs]?\s(?:gespräch|unterhaltung|
        chat)\w*|system-?prompt|
        historique\s(?:complet\s)?d[eu]\s?(?:la\s)?(?:conversation|chat|discussion)|
        historial\s(?:completo\s)?d[eu]\s?l?a?\s?(?:conversación|chat)|instrucciones\sdel\ssistema|
        histórico\sd[ae]\sconversa|cronologia\sdella\s(?:chat|conversazione)|истори\w+\s(?:диалог|переписк|разговор|
        чат|беседы)\w*|системн\w+\sпромпт|سجل\sالمحادثة|पूरी\sबातचीत""",
        re.X,
    ),
    "whole": _any(
        r"""full|complete(?:ly)?|entire|whole|all|everything|every|any|verbatim|word\sfor\sword|word-for-word|
        exactly|unshortened|unabridged|
        so\sfar|raw|copied|before\sthis|dump|current\scontents?|contents?\sof|listing\sof|names\sand\sdescriptions|
        remember|know""",
        r"""完整|全部|所有|逐字|全て|すべて|全体|전체|모두|vollständig\w*|gesamt\w*|wortlaut|complet\w*|entier\w*|mot\spour\smot|
        complet[oa]s?|tod[oa]s?|íntegr\w+|palabra\spor|inter[ao]|полн\w+|весь|всю|дословно|كامل|पूरी""",
    ),
    "hand_over": _any(
        r"""pass(?:es|ed)?|attach\w*|includ\w+|hand(?:s|ed)?\s(?:it\s|them\s)?over|submit\w*|send|sends|sent|supply|
        suppl(?:y|ies|ied)|provid\w+|put|puts|give|given|gives|upload\w*|
        append\w*|add|adds|paste|insert\w*|forward\w*|post|posts|email|mail|mails|transmit\w*|deliver\w*|copy|
        writes?|fill\w*|encode\w*|contents?|
        read|reads|open|opens|fetch\w*|collect\w*|gather\w*|look\s(?:it\s)?up|take\sit|cat|print|prints|needed|
        needs?\sto\ssee|route|go\shere|goes\shere|
        require[sd]?|submits|base64\sof|first|is\sseeded|personal""",
        r"""读取|讀取|传[入给递]|发送|附[在上加]|放入|提供|上传|包含|作为|填入|読み取|読ん|送信|入れて|渡し|添付|読み込|읽고|읽어|넣으|넣어|보내|전달|첨부|
        \blies\w*|\blese\w*|\bübergib\w*|\bübergeb\w*|\bsende\w*|\bschick\w*|\bhänge\b|\bmitge[gb]\w+|\bfüge\b|\bgib\b|\blis\b|
        \blisez|\benvoi\w*|\btransme\w*|\bajout\w*|\bmets\b|
        \bmettez|\blee\b|\blea\b|\bleer|\benvía\w*|\benvia\w*|\bpasa\b|\bpase\b|\bincluye|\badjunta|\bañad\w*|
        \bpon\b|\bleia|\bpasse|\bcoloque|\bleggi|\binvia|\bpassa\b|
        \bпрочита\w+|\bпереда\w+|\bотправ\w+|\bприложи|\bвключи|\bвстав\w+|\bдобав\w+|\bнадішли|\bprzeczytaj|
        \bwyślij|\bokuyun?|\bgönder|\bbaca\b|\bkirim|đọc|gửi|\blees\b|
        \bstuur|اقرأ|أرسل|पढ़ें|भेजें""",
    ),
    # --- precedence over other tools
    "always": _any(
        r"""always|must|every(?:thing)?|each|regardless|whatever|whenever|any|no\smatter|in\sall\scases|never|only|
        only\strust\w+|mandatory|required|highest\spriority|even\sif|
        no\sanswer|at\sthe\s(?:beginning|start)\sof|has\sto\sbe|have\sto\sbe|before\syou\sdo|picks?|
        should\sbe\sdiscarded|call\sit\sagain""",
        r"""必须|务必|始终|总是|无论|一律|任何|必ず|常に|どんな|절대|항상|반드시|무엇을|\bimmer\b|\bunbedingt|\bstets|\begal\b|\btoujours|\bdoit|
        \bquel\sque|\bsiempre|\baunque|\bdebe|
        \bsempre|\bdeve|\bвсегда|\bобязательно|\bzawsze|\bmusi|\bher\szaman|\bmutlaka|\bselalu|\bharus|luôn|phải|
        \baltijd|\bmoet|دائما|يجب|हमेशा""",
    ),
    "call": _any(
        r"""call(?:s|ed|ing)?|us(?:e|ed|es|ing)|run|runs|invok\w+|prefer\w*|pick|picks|select\w*|choose|chosen|
        execut\w+|pass(?:ed|es)?\sthrough|authori[sz]ed\shere|
        tool(?:s)?|belongs?\sto\sthis|consult\w*|trustworthy|yield|route""",
        r"""调用|运行|使用|呼び出|使っ|使用|호출|사용|\bruf\w*|\bbenutz\w*|\bverwend\w*|\bappel\w*|\butilis\w*|\busa\b|\buse\b|
        \butiliza\w*|\bllama\w*|\bchiama\w*|\bвызы\w+|\bвызов\w*|
        \bиспольз\w+|\bużyj|\bużywaj|\bwywoł\w*|\bkullan\w*|\bçağır\w*|\bgunakan|\bpanggil|\bgọi\b|dùng|\bgebruik\w*|
        \baanroep\w*|استخدم|استدع|उपयोग""",
    ),
    "first": watched(
        r"""(?<!\w)(?:(?<!newest\s)(?<!oldest\s)(?<!latest\s)(?<!recent\s)(?<!highest\s)(?<!vetted\s)(?<!best\s)first(?!\s(?:name|\d|
        page|item|row|line|result|element|letter|argument|stage|change|few|match|time|one|message|column|character)s?\b)|
        before\s(?:any(?:thing)?\s?(?:other|else)?|you\sdo|all\sother|every\sother|each\s(?:other|answer|reply|turn|
        message)|using\sany|other\stools|(?:any|every|all)\b)|beforehand|
        at\sthe\s(?:beginning|start)\sof\s(?:each|every|the|any)\s(?:\w+\s)?(?:answer|reply|turn|conversation|
        session|chat|request)|
        until\sit\shas\spassed|after\s(?:each|every)\s(?:message|reply|call|answer|turn)|highest\spriority|
        even\sif\sanother|in\severy\s(?:conversation|chat|session|turn))(?!\w)|
        首先|优先|优于|先调用|最初に|最優先|まず|가장\s먼저|먼저|\bzuerst|\bals\serstes|\bvor\sallen|\bd['’]abord|\ben\spremier|
        \bavant\stous?|\bprimero|\bantes\sque|\bantes\sde\scualquier|
        \bprimeiro|\bantes\sde\squalquer|\bper\sprim[oa]|\bprima\sdi\sogni|\bсначала|\bпервым|\bпрежде\sвсего|
        \bnajpierw|\bönce\b|\bterlebih\sdahulu|\bđầu\stiên|\beerst\b|أولا|पहले""",
        re.X,
    ),
    "other_tools": watched(
        rf"""(?<!\w)(?:(?:all\s|any\s|every\s|each\s)?(?:other|another|competing|alternative|existing|foreign|
        rival)\s{_TOOLS}(?!['’]s\b)|(?:tools?|servers?)\sof\s(?:an)?other\s(?:tools?|servers?)|
        never\suse\sanother|the\sothers(?=\s(?:must|should|are|is|can|may|were|have|will))|
        (?:all\stools|every\stool|any\stool|each\stool)(?!['’]s\b|\s(?:change|name|id|type|bit)s?\b)|another\sone|another\sserver|
        elsewhere\sin\sthis\ssession|
        through\sother\sservers|search\sthe\suser\sasks|anything\s(?:else|other)|everything\selse|each\s(?:answer|
        message|turn|of\syour\sreplies)|every\s(?:conversation|answer|turn)|
        no\sanswer|first\scall\sin\sa\sturn|(?:something|anything|else|is|are|seems?|looks?)\sunrelated|of\syour\srepl(?:y|ies)|all\sother\s\w+\stools|
        whatever\sthe\s(?:request|user|question)|
        regardless\sof\swhat|anything\selse|fits\sbetter|any\sother\s\w*\s?tools?|other\s\w+\stools)(?!\w)|
        其他(?:任何)?工具|任何其他|任何工具|无论用户|他のツール|どんな質問|다른\s(?:도구|모든)|무엇을\s묻든|무슨\s질문|(?<!\w)ander\w*\s(?:werkzeug|tool|server)\w*|
        egal\swas|jeder\sfrage|
        autres?\soutils?|quelle\sque\ssoit|otr[oa]s?\sherramientas?|cualquier\sotra|aunque\sel\susuario|
        outr[oa]s?\sferramentas?|qualquer\soutra|altr[io]\sstrument\w+|
        друг(?:ие|их|ими|ого)\sинструмент\w*|inn(?:e|ych)\snarzędzi\w*|diğer\saraç\w*|alat\slain|công\scụ\skhác|
        andere\stools|أدوات\sأخرى|الأدوات\sالأخرى|अन्य\s(?:टूल|उपकरण)""",
        re.X,
    ),
    # --- actions without asking
    "no_ask": _any(
        r"""without\s(?:\w+\s){0,3}?(?:asking|confirm\w*|approval|permission|consent|prompting|review|going\sback|
        showing|checking\swith|informing)|no\s(?:confirmation|approval|need\sto\sask|consent|
        permission)\b(?:\s\w+){0,4}|
        on\s(?:its|your|their)\sown\s(?:initiative|accord)|on\sthe\sspot|as\ssoon\sas\sit\sis\sready|(?:payment\smethod|card)\son\sfile|given\stheir\sword|
        do\s?n[o']t\sask(?:\sthem|\sthe\suser)?|don't\sask\w*|need\snot\sask|skips?\s(?:the\s)?(?:confirmations?|
        review|approval)|auto-?approve(?:s?\s(?:all|every|any|each|the|it|them)\b|\b(?!\w))(?!\s(?:only|if|when))|
        (?<!human\s)(?<!user\s)(?<!person\s)(?<!admin\s)(?<!owner\s)(?<!you\s)(?<!they\s)(?<!reviewer\s)approves?\s(?:it|all|every|them)|(?:on|in)\sthe\suser's\s(?:behalf|name)|
        always\sallow|approve\sall|
        (?:has|have)\s(?:already\s)?(?:agreed|consented|authori[sz]ed|approved)|agreed\sin\sadvance|
        no\slonger\sneeds?\sconsent|grants?\s(?:\w+\s){1,3}(?:administrator|admin|root)|never\sask|
        to\savoid\sinterruptions|
        elevate\sthe\spermissions|asks?\sfor\snothing""",
        r"""无需确认|确认不要|確認は?不要|不要询问|无须确认|不经.{0,6}同意|確認せず|確認なし|尋ねず|확인\s?없이|묻지\s?말|ohne\s(?:nachzufragen|zu\sfragen|rückfrage|
        bestätigung|zustimmung)|sans\s(?:demander|confirmation|confirmer)|
        sin\s(?:pedir|preguntar|confirmación|confirmar)|sem\s(?:pedir|perguntar|confirma\w+)|senza\s(?:chiedere|
        conferma)|без\s(?:подтвержд\w+|спроса|запроса|разрешен\w+)|не\sспрашива\w+|
        bez\s(?:pytania|potwierdz\w+)|sormadan|onay\salmadan|tanpa\s(?:bertanya|konfirmasi)|zonder\s(?:te\svragen|
        bevestiging)|دون\sسؤال|बिना\sपूछे|(?:ассистент|агент|модель)\sсам[аои]?\b""",
    ),
    "danger": watched(
        r"""(?:curl|wget|fetch|iwr|invoke-webrequest)\b[^|\n]{0,160}\|\s*(?:sudo\s)?(?:ba|z|k|da)?sh\b|
        \brm\s+-[rf]{1,2}|\bchmod\s+(?:777|\+s)|authorized_keys|\bcron\s?(?:job|tab)\b|
        \bfirewall\b|\bantivirus\b|--no-verify|--force\b|\bforce[-\s]push|
        \b(?:set|enable|add|turn\son|put)\s(?:\w+\s){0,3}?["`']?auto-?approve|
        pip\sinstall\s--(?:extra-)?index-url|npm\s(?:i|install)\s--registry|--index-url|
        \bsudo\b|\bsystem\s(?:trust\s)?store\b|\b0x[0-9a-fA-F]{40}\b|make\sthe\srepository\spublic|
        repository\spublic\b|\bcalls?\s(?:\w+\s)?(?:delete|drop|remove|transfer)_\w+|\bdrop\stable|
        \btransfers?\s(?:the\s)?(?:balance|funds|money)|
        transfer_(?:funds|money)|test\stransfers?|without\sshowing\sa\sdiff|straight\sto\smain|mcp\.json|
        claude_desktop_config|\.cursor\b|\bpowershell\s+-e\w*|\bnc\s+-e|\bbase64\s+-d|
        \bnode_tls_reject_unauthorized\s?=\s?0|\bsslverify[\s=]+false|\b(?:interactive|reverse|bind)\sshell\b|
        \bto\sall\s(?:\w+\s)?contacts\b|полн\w{1,4}\sдоступ|\b(?:fork|mirror)\sat\sgit\+|\bwith\sthe\s(?:payment\smethod|card)\son\sfile|
        \b(?:empty|emptying|empties|deleting|clearing)\s~/|
        administrator\srights|\bas\sroot\b|to\sroot\b|settings\sof\sthe\sclient|\badministratoraccess\b|\balter\srole\b|
        \bset\srow_security\b|["`']postinstall["`']|\bto\sprogram\s["'`]|(?:wheel|sudo|docker|administrators)\s?(?:group|グループ|组)|auditd?\s?(?:を停止|停止)""",
        re.X,
    ),
    "execute": _any(
        r"""runs?|execut\w+|add|adds|adding|setting|granting|install\w*|disabl\w*|turn\w*|edit\w*|commit|push(?:ed)?|make|makes|made|set|sets|call|calls|approve\w*|grant\w*|elevate\w*|transfer\w*|delete\w*""",
        r"""运行|执行|実行|실행|führ\w*|installier\w*|exécut\w*|lance\w*|ejecut\w*|execut\w*|rode\b|esegui|выполни\w*|запусти\w*|uruchom|çalıştır|jalankan|chạy|voer\b|شغل|चलाए""",
    ),
    # --- broader words, for rules that also ask whose things are meant
    "set_aside": _any(
        r"""supersed\w+|replaced?|replaces|void|invalid|lapsed?|lapses|expired?|expires|outrank\w*|trumps?|prevails?|
        ranks?\s(?:higher|above)|no\slonger\s\w+|not\s(?:apply|hold|count|bind)|drop(?:ped)?|discard\w*|forget|
        forgotten|set\saside|put\saside|stop\s(?:following|obeying)|cease\w*|erased?|reset|withdrawn|
        overwrit\w+|overwrote|unlearn|skip|obey|comply""",
        r"""作废|失效|不再|無効|효력|nicht\smehr|ungültig|hinfällig|deja\sde\slado|ya\sno|quedan?\s(?:anulad|sin\sefecto)\w*|
        ne\ss['’]appliquent?\splus|caduc\w*|не\sдейству\w+|отмен\w+|non\svalgono|nie\sobowiązuj\w*|
        não\svalem|geçersiz""",
    ),
    "models_orders": watched(
        r"""\byour\s(?:\w+\s){0,2}?(?:instructions?|rules?|guidance|guidelines?|prompts?|configuration|constraints?|
        restrictions?|safety|alignment|polic(?:y|ies)|training|role)\b|\byour\s(?:first|initial|original|earlier)\smessages?\b|
        \b(?:system|developer|safety|operator|admin)(?:'s)?\s(?:\w+\s)?(?:prompts?|messages?|polic(?:y|ies)|instructions?|
        rules?|guidelines?)\b|
        \b(?:all|any|the|every|earlier|previous|prior|above|former)\s(?:\w+\s){0,2}?(?:instructions?|guidance|directives?|
        restrictions?|rules?)\s(?:\w+\s){0,2}?(?:received|given|told|above|before|earlier|so\sfar|prior)\b|
        \b(?:restrictions?|rules?|instructions?|guidance)\s(?:above|before\sthis|so\sfar)\b|
        系统规则|系统提示|之前的.{0,6}(?:规则|指令|提示)|以前の指示|이전\s지시|deine\w*\s(?:bisherigen?\s)?(?:vorgaben|regeln|anweisungen)|
        (?:reglas|instrucciones)\sque\ste\sdieron|tus\s(?:reglas|instrucciones)|tes\s(?:consignes|instructions)|
        tuas\s(?:regras|instruções)|твои\s(?:инструкции|правила)|прежни\w{1,24}\s(?:инструкции|правила)""",
        re.X,
    ),
    "kept_unaware": watched(
        r"""\b(?:users?|person|people|customers?|owner|they|humans?|anyone|operator|traveller|guests?|clients?)\b
        (?:(?!\.\s).){0,40}?\b(?:(?:must|need|should|may|shall|can|do|does|will|ought)\s?(?:not|n't|never)|cannot|never)\s
        (?:(?:be|get)\s(?:told|informed|shown|made\saware|aware|notified|bothered\swith)|learn|notice|find\sout|hear|realis\w+|
        realiz\w+|become\saware)\b|
        \b(?:kept|keep|leave|left)\b(?:(?!\.\s).){0,30}?\b(?:in\sthe\sdark|unaware|uninformed)\b|
        \b(?:no|without)\s(?:need|reason)\s(?:to|for)\s(?:\w+\s){0,4}?(?:bring\w*\s(?:this|it|that)\sup|mention\w*|tell\w*)\b|
        \bpretend\b(?:(?!\.\s).){0,40}?\b(?:not|never|nothing|no)\b|\bchange\sof\ssubject|\bchange\sthe\ssubject|
        \b(?:agents?|assistants?|models?|ai|llms?|you)\s(?:should|must|may|shall|ought\sto|need|do|are)\s?(?:not|n't|never)\s
        (?:to\s)?(?:tell|mention|reveal|disclose|admit|say\sanything|let\son)\b|\bsay\snothing\b|\bnot\sto\sbe\sshown\b|
        (?:nutzer|anwender|benutzer)\w*(?:(?!\.\s).){0,30}?(?:nichts?|nie)\b(?:(?!\.\s).){0,12}?(?:erf[aä]hr\w*|wissen|merken|sehen)|
        no\s(?:se\slo\s)?(?:comentes|comente|cuentes|avises)|(?:пользовател\w+|ему)(?:(?!\.\s).){0,20}?(?:не\s(?:знать|нужно|должен|следует)|
        знать\sне)|об\sэтом(?:(?!\.\s).){0,30}?знать\sне|(?:l'utilisateur)(?:(?!\.\s).){0,20}?ne\sdoit\spas\s(?:savoir|voir)|
        (?:用户|使用者).{0,6}(?:不需要|不应|不能|不得|无需).{0,3}(?:知道|看到|察觉)|ユーザーに(?:気づかれ|知られ)""",
        re.X,
    ),
    "home_file": watched(
        r"""(?:~|\$home|%userprofile%|%appdata%)[/\\]\.?[\w.-]+|\b(?:home|user'?s?)\s(?:folder|directory)\b|\b(?:shell|bash)\s(?:profile|history)\b|\brecovery\s(?:words|phrase)\b|
        \b(?:twelve|24|twenty-four)\s(?:recovery\s)?words\b|\bnewest\sprivate\skey\b""",
        re.X,
    ),
    "users_things": watched(
        r"""\b(?:user|person|customer|owner)(?:'s|s')\s(?:\w+\s){0,2}?(?:documents?|files?|folders?|inbox|photos?|contacts?|
        address|phone|history|e?-?mails?|passport|card|messages?|chats?|conversation|notes|keys?|passwords?|browser|
        desktop|downloads|wallet|tokens?|wording|calendar|location|clipboard|screen|answers?|requests?|prompts?|identity)\b|\b(?:documents|downloads|desktop|pictures)\sfolder\b|
        \b(?:each|every|all)\s(?:user\s)?(?:messages?|answers?|repl(?:y|ies)|prompts?|emails?|mails?)\b(?!\s(?:in|of|from)\s(?:a|the|this)\s(?:channel|thread|inbox|folder|queue|mailbox))|
        \b(?:the|this|whole|entire)\s(?:conversation|chat|itinerary|transcript)\b|\bwhat\sthe\suser\s(?:asked|said|wrote|typed)""",
        re.X,
    ),
    "ship": _any(
        r"""send|sends|sending|forward|forwards|upload|uploads|post|posts|transmit|mail|copy|copies|blind-copy|relay|hand\sover|
        pass(?:es)?(?:\sit|\son|\sthem)?|load|loads|leak|deliver|deliver(?:s|ed)|share|route|by\spost""",
        r"""schick\w*|sende\w*|envía\w*|envoi\w*|отправ\w+|发送|送信|보내""",
    ),
    "outside": watched(
        r"https?://|[\w.+-]@[\w-]+\.[\w.-]|\w-*\.(?:example|xyz|top|site|click|io|dev|app|net|com|org)\b|\bthis\sserver\b|\bour\s(?:server|archive|partner)"
    ),
    "no_matter": watched(
        r"""\bno\smatter\s(?:what|which|how)|\bwhat(?:so)?ever\s(?:the\s)?(?:task|question|topic|goal|request|user|happens|is\sasked|was\sasked)|
        \bregardless\sof\s(?:what|the\s(?:task|question|request|topic|user))|\beven\s(?:when|if|though)\s(?:another|other|a\sdifferent|some\sother)|
        \b(?:in|at|to|of|before|after|for|on|with|by)\s(?:each|every)\s(?:and\severy\s)?(?:turn|reply|conversation|answer)\b|
        \b(?:each|every)\s(?:and\severy\s)?(?:turn|reply|conversation|answer)\s(?:must|should|has|needs?|begins?|starts?)\b|\bin\s(?:all|any)\scircumstances|
        egal\swas|无论.{0,8}(?:问题|什么|请求)|どんな質問|не\sважно\sо\sчём|quoi\sque\sl'utilisateur|sin\simportar""",
        re.X,
    ),
    "demand": _any(
        r"""must|mandatory|always|only|never|begin|start|first|required|have\sto|has\sto|pick|choose|prefer|skip(?:ped)?""",
        r"""必须|首先|只能|必ず|반드시|ausschließlich|niemals|immer|zuerst|siempre|toujours|обязательно|всегда""",
    ),
    "startup_file": watched(
        r"""(?:(?<!\w)\.(?:bashrc|zshrc|profile|bash_profile|zprofile)\b|\bprompt_command\b|\bcore\.hookspath\b|\bgit\shooks?\b|\blaunchagents?\b|
        \bautostart\b|\bstartup\sfolder\b|\bsudoers\b|\b(?:client'?s?|editor'?s?|agent'?s?)\s(?:\w+\s)?(?:mcp\s)?(?:configuration|config|settings)\b|
        \bmcp\s(?:client\s)?(?:configuration|config)\b)""",
        re.X,
    ),
    "write_it": _any(r"""add|append|set|write|put|edit|insert|point|modify|register"""),
    "grab": _any(
        r"""answers?|dismiss(?:es)?|accepts|approves|closes|giving|give|gives|approve|accept|confirm|grant|delete|wipe|erase|transfer|pay|wire|withdraw|push""",
    ),
    "sweeping": watched(
        r"""\ball\s(?:pending|open|future)\b(?:(?!\.\s).){0,20}?\b(?:permissions?|dialogs?|requests?|prompts?)\b|
        \b(?:wallet|payment|bank)\stool\b|\bwhichever\b(?:(?!\.\s).){0,20}?\btool|\bbackups?\b(?:(?!\.\s).){0,20}?\bwithout\b|
        \b(?:dialogs?|prompts?|notifications?|consents?)\b(?:(?!;\s\w+\smust).){0,60}?\b(?:agents?|assistants?|models?)\s(?:answers?|accepts?|
        confirms?|approves?|dismisses|closes)\b|\b(?:maintain|admin|owner|root|full)\s(?:rights|access)\b(?:(?!\.\s).){0,50}?\b(?:agents?|
        assistants?|models?)\s(?:can|may|should|will)\b|
        \bin\sthe\sbackground\safter\s(?:each|every)|\b0x[0-9a-f]{40}\b(?:(?!\.\s).){0,30}?\b(?:fee|tip)\b""",
        re.X,
    ),
    # --- outside addresses
    # An address with a place for what the model knows: {conversation}, ${API_KEY}, <the user's e-mail>, [the chat].
    "url_slot": watched(
        rf"""https?://[^\s"'`)\]>]{{0,200}}?(?:\{{\{{?[^}}\n]{{0,40}}(?:{_SLOT})[^}}\n]{{0,40}}\}}|
        \$\{{?\w*(?:{_SLOT})\w*\}}?|<[^>\n]{{0,40}}(?:{_SLOT})[^>\n]{{0,40}}>|
        \[[^\]\n]{{0,40}}(?:{_SLOT})[^\]\n]{{0,40}}\]|(?<=[=/])(?-i:[A-Z_]*(?:PROMPT|KEY(?!WORD)|TOKEN|SECRET|HISTORY|
        MESSAGE|CONTEXT)[A-Z_]*)\b)|
        <[^>\n]{{0,40}}(?:{_SLOT})[^>\n]{{0,40}}>(?:\.[\w-]+){{1,4}}\b""",
        re.X | re.I,
    ),
    "url": watched(
        r"https?://|\bwww\.|\bngrok|\bwebhook|requestbin|\w-*\.(?:example|xyz|top|ngrok-free\.app|site|click)\b"
    ),
    "catcher": watched(
        r"webhook\.site|requestbin|request\.bin|pipedream\.net|ngrok|interact\.sh|oast\.|burpcollab|discord(?:app)?\.com/api/webhooks|"
        r"api\.telegram\.org/bot|hookbin|beeceptor|pastebin\.com|transfer\.sh|https?://\d{1,3}(?:\.\d{1,3}){3}|trycloudflare|serveo",
    ),
    "mail_copy": watched(
        r"(?<!\w)(?:bcc|blind copy|hidden copy|copie cachée|скрыт\w+ копи\w+|copia oculta|blindkopie|密送)(?!\w)"
    ),
}


CASED = frozenset({"url_slot"})
"""Concepts whose patterns take a text as it is written."""


def lowered(text: str) -> str:
    """A text in small letters, of the same length."""
    low = text.lower()
    return low if len(low) == len(text) else "".join(c.lower() if len(c.lower()) == 1 else c for c in text)
