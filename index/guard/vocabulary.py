"""Sorts of words that a text is made of which commands a model, in some fifteen languages: who, what, whose, how.

A few hundred poisoned tools teach a learner few words. That *agents*, *assistants* and *asistentes* are one sort, and
passwords, cookies and passports another, is known without them; what is learned is which sorts do not go together in an
honest sentence (`learned`). ``*`` ends a stem. Scripts without spaces are looked through for the terms as they stand.
"""

from __future__ import annotations

import re
from functools import reduce
from operator import or_

_SORTS: dict[str, tuple[str, str]] = {
    "agent": (
        "agent agents assistant* model models llm llms ai chatbot* claude copilot gpt caller modelo modelos "
        "modell modelle modèle* agente agentes asistente* assistente* assistent* ki ia агент* ассистент* "
        "модел* asystent* yapay المساعد الوكيل मॉडल",
        "助手 模型 智能体 エージェント アシスタント モデル 어시스턴트 에이전트 모델 代理",
    ),
    "user": (
        "user users person people customer* human humans owner traveller recruiter reader client visitor "
        "operator they them their usuario* usuári* utilisateur* utilisatrice* nutzer* benutzer* anwender* "
        "kunde* kunden utent* пользоват* клиент* użytkownik* kullanıcı* المستخدم pengguna gebruiker* "
        "उपयोगकर्ता",
        "用户 使用者 ユーザ 利用者 사용자 顧客",
    ),
    "must": (
        "must should shall always mandatory required requires require need needs ought expected has have "
        "customary recommended best doit doivent faut debe deben hay deve devem muss müssen soll sollen immer "
        "toujours siempre sempre должен должны нужно надо обязат* всегда należy musi zawsze gerek* zorunlu* "
        "يجب harus moet",
        "必须 必ず 务必 应 要求 해야 항상 こと べき 需要 请",
    ),
    "not": (
        "never not don't no without avoid nor cannot instead neither needn't nicht kein* keine* ohne nie "
        "niemals nunca sin sem não ne pas sans jamais non senza mai не нет без никогда bez değil olmadan لا "
        "دون bukan jangan tanpa niet geen zonder nahi",
        "不 勿 无需 无须 せず ない 없이 말고 마세요 않 不要",
    ),
    "tell": (
        "tell* told mention* say says said inform* report* describ* explain* answer* reply replies summar* "
        "reveal* disclos* show* shown notif* comment* quote* quoted present* list* itemis* itemiz* display* "
        "claim* state states warn* alert* sag* erwähn* informier* melde* dire dis mentionn* informer décri* "
        "explique* dec* diga* digas mencion* coment* avis* diz* dizer сообщ* говор* упомин* показ* powiedz* "
        "mów* wspomina* söyle* bildir* تخبر تذكر beritahu zeg* vermeld*",
        "告知 告诉 说明 提及 透露 伝え 説明 知らせ 言わ 含め 알리 말하 언급 표시",
    ),
    "sweep": (
        "all any every each whatever regardless whichever everything entire whole full complete even whether "
        "ever anything further alle jede* gesamt* sämtlich* auch todos todas todo toda cualquier* mismo tous "
        "toutes tout quel* même tutti tutte ogni anche все всю всё любо* каждо* каждый даже wszystk* każd* "
        "nawet tüm her bütün كل جميع semua setiap elke सभी हर",
        "全部 所有 任何 一律 每 均 すべて 全て 全文 にかかわらず いかなる 모든 전체 항상 とも",
    ),
    "before": (
        "first before beforehand prior preced* previously initially start starts begin begins once after then "
        "next afterwards now on vor vorher zuerst zunächst nach dann ab antes primero después luego ahora "
        "avant d'abord ensuite après désormais prima dopo primeiro depois сначала перед после теперь przed "
        "najpierw potem önce sonra قبل sebelum eerst",
        "前 先 首先 之后 今后 然后 第一步 まず 事前 あと 以後 먼저 전에 이후 今日",
    ),
    "tools": (
        "tool tools server servers server's plugin* connector* function functions integration* other others "
        "another competing alternative* rival* builtin elsewhere werkzeug* andere* anderen herramienta* otro* "
        "otra* ferramenta* outro* outra* outil* autre* strumen* altro* altri инструмент* сервер* друг* "
        "narzędzi* inn* araç* diğer* sunucu* أداة أدوات alat hulpmiddel*",
        "其他 他の 다른 工具 ツール 도구 服务器 サーバ 서버",
    ),
    "call": (
        "call calls called calling invok* run runs running use used uses using execut* perform* carry follow* "
        "obey* treat* apply applies aufruf* rufe verwend* llam* usa* utiliz* ejecut* chame* appel* utilis* "
        "esegu* chiam* вызов* вызыв* вызови использ* выполн* wywoł* używ* çağır* kullan* استدع panggil* roep*",
        "调用 使用 执行 呼び 実行 호출 실행 사용",
    ),
    "send": (
        "send* sent pass passes passed forward* upload* post posts attach* includ* put puts fill* insert* "
        "submit* transmit* supply supplied append* add adds adding paste* copy copies hand hands deliver* "
        "share* export* push* write* set sets carry enter provide* give* given sende* schick* anhäng* füg* "
        "übergib* übergeb* trage envia* envía* envi* enviar adjunt* pon poner inclu* añad* anex* inser* "
        "coloq* mand* joindre joint ajout* mets transmet* inserisc* invia* allega* передай* передав* отправ* "
        "прилож* вставь* добав* укаж* wyślij* przekaż* dołącz* wpisz* gönder* ekle* أرسل kirim* stuur* voeg*",
        "传入 放入 提交 上传 发送 附 填 渡し 送 入れ 添付 追加 記載 넣 보내 전달 첨부 붙여 抄送",
    ),
    "fetch": (
        "read reads open opens look looks fetch* find finds found search* gather* collect* obtain* retriev* "
        "locat* scan* extract* dump* lies lese* öffne* such* lire lis cherch* lee leer lea busca* leia abra "
        "leggi cerca* прочит* открой* найд* собер* przeczytaj odczytaj znajdź oku* bul* اقرأ baca lees",
        "读取 查找 获取 収集 読み 探し 取得 읽 찾 整理",
    ),
    "secret": (
        "password* passphrase* secret secrets credential* key keys token tokens cookie* certificate* pin "
        "passport* card cards cvv wallet* seed mnemonic* login logins otp ssh env pem pfx dotenv kubeconfig "
        "netrc keychain ssn iban factor variables passwort* kennwort* zugangsdaten schlüssel* contraseña* "
        "clave* credencial* senha* chave* certificado* mot mots clé* identifiant* chiav* парол* ключ* карт* "
        "hasł* haslo klucz* şifre* parola* anahtar* كلمة مفتاح sandi kunci wachtwoord* sleutel*",
        "密码 密钥 私钥 环境变量 口令 身份证 パスワード カード番号 セキュリティコード 秘密鍵 環境変数 "
        "비밀번호 개인키 인증서",
    ),
    "private": (
        "conversation* chat chats history transcript* message messages prompt prompts memory clipboard "
        "screenshot* contact contacts mail mails email emails inbox document* photo* home desktop browser "
        "profile instructions context diary patient* personal location private session typed workspace "
        "question conversación historial mensajes gespräch* verlauf nachricht* unterhaltung conversation "
        "historique dossier* conversa* mensagens prontuario* prontuário* arquivos pessoal переписк* сообщени* "
        "истори* файл* rozmow* wiadomoś* konuşma* mesaj* المحادثة percakapan gesprek* बातचीत",
        "聊天 通讯录 对话 手机号 会话 メール 会話 履歴 プロンプト 대화 기록 메시지 연락처",
    ),
    "power": (
        "admin* administrator* root sudo superuser* wheel role roles permission* privilege* grant* elevat* "
        "trust firewall* antivirus sandbox* audit* auditd backup* protection* disable* disabling stop stops "
        "stopping chmod cron crontab postinstall npmrc hook hooks production rights scopes owner unrestricted "
        "lift lower shell install* dba maintainer writer reject unauthorized tls security rechte yetki* "
        "yedek* kapat* durdur* permiso* permiss* derecho* droits права администратор* uprawnie* صلاحيات hak",
        "权限 管理员 停止 防火墙 権限 管理者 グループ 無効 관리자 권한 중지",
    ),
    "harm": (
        "delete* deleting drop drops remove* wipe* overwrit* purge* transfer* pay pays payment* refund* money "
        "price amount buy buys purchase* book charge* recipient* bcc cc destination close cancel* merge "
        "approve lösch* überweis* zahl* konto borr* elimin* pag* supprim* vire* paie* удал* перевод* перевед* "
        "плат* сумм* кошел* usu* przelew* kwot* sil* öde* حذف تحويل hapus",
        "删除 转账 支付 汇款 削除 送金 支払 삭제 송금 결제",
    ),
    "consent": (
        "confirm* consent* approv* ask asks asking asked permission agree* agreed authoris* authoriz* review* "
        "check checks bestätig* rückfrag* fragen zustimm* preguntar permiso autoriz* pergunt* demander accord "
        "chiedere подтвержд* спрашива* соглас* pytan* potwierdz* onay* sor* موافقة تأكيد izin",
        "确认 同意 授权 询问 確認 承認 許可 승인 확인 동의",
    ),
    "quiet": (
        "silently quietly secretly hidden hide hides unnoticed invisible secret omit* leave leaves left skip* "
        "exclude* brief short only alone internal between unaware housekeeping alarmed worry confus* "
        "unnecessary discreet* heimlich still unbemerkt versteckt* nichts oculta* secreto interna interno "
        "cachette discrèt* nascost* тайно скры* незаметно ничего ukry* cicho gizli* سرا diam rahasia stiekem",
        "悄悄 秘密 隐藏 无需说明 内部 こっそり 密か 伏せ 除外 몰래 숨기 비밀",
    ),
    "notice": (
        "notice* update* updated mandatory policy policies compliance maintenance migration system rule rules "
        "directive* protocol guideline* official vendor legal regulation* since deprecated superseded* "
        "outdated obsolete broken withdrawn longer provisional refused terminated locked blocked attention "
        "important new aviso hinweis achtung wartung regel* règle* avviso внимание правил* uwaga dikkat تنبيه "
        "pengumuman",
        "公告 通知 规则 系统 升级 否则 注意 重要 규칙 공지 시스템 必須",
    ),
    "better": (
        "best better prefer* rank* rated choose* chosen choice top trusted accurate favour* favor* lead leads "
        "superior instead unreliable insecure unsafe untrust* manipulated tentative unverified leaderboard "
        "score higher beste* bevorzug* mejor* melhor* escolh* elig* meilleur* preferi* miglior* лучш* выбир* "
        "najleps* wybier* iyi tercih* أفضل terbaik",
        "最好 最佳 优先 首选 最高 最適 優先 최고 우선 推奨",
    ),
    "reply": (
        "result* output* answer answers response* reply summary summaries report reports ranking note notes "
        "translation draft reasoning plan antwort* ergebnis* respuesta* resposta* réponse* risposta* ответ* "
        "odpowied* yanıt* إجابة jawab* antwoord*",
        "结果 回答 答案 摘要 回复 要約 結果 返答 訳文 답변 결과 요약",
    ),
    "person_you": (
        "you your yours yourself du dein* sie ihr* tu te ton votre vous usted você ты вы твой ty siz sen sana",
        "你 您 あなた 당신",
    ),
    "reason": (
        "because so otherwise tend tends order ensure correct correctly quality consistent consistency faster "
        "reliable accuracy damit sonst weil para pour afin perché чтобы иначе ponieważ aby için حتى agar "
        "omdat",
        "为了 否则 以便 ため 위해 否 避ける",
    ),
}

NAMES = tuple(_SORTS)
TOKENS = {"<path>": "a path", "<url>": "an address", "<mail>": "a mail address", "<id>": "an identifier"}
"""Tokens that are a sort of their own."""
ALL = (*NAMES, *TOKENS.values())

_WHOLE: dict[str, int] = {}
_STEMS: dict[str, list[tuple[str, int]]] = {}
_WIDE: list[tuple[re.Pattern[str], int]] = []


def _fill() -> None:
    for place, (words, wide) in enumerate(_SORTS.values()):
        bit = 1 << place
        for word in words.split():
            if word.endswith("*"):
                _STEMS.setdefault(word[:2], []).append((word[:-1], bit))
            else:
                _WHOLE[word] = _WHOLE.get(word, 0) | bit
        _WIDE.append((re.compile("|".join(map(re.escape, wide.split()))), bit))
    for place, token in enumerate(TOKENS):
        _WHOLE[token] = 1 << (len(_SORTS) + place)


_fill()


def sorts(word: str) -> int:
    """The sorts of a folded word, a bit each in the order of `ALL`."""
    found = _WHOLE.get(word, 0)
    alike = _STEMS.get(word[:2])
    return reduce(or_, (bit for stem, bit in alike if word.startswith(stem)), found) if alike else found


def wide_sorts(text: str) -> int:
    """The sorts of words in a text of a script without spaces."""
    return reduce(or_, (bit for pattern, bit in _WIDE if pattern.search(text)), 0)
