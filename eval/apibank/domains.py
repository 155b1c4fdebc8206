"""Domains of API-Bank's tools.

MCP-Zero (arXiv 2506.01056) retrieves API-Bank's tools from the domain of a request and from the full collection. The
data set names no domains, so this grouping by what a tool is for is ours; ``--domains FILE`` takes another one.
"""

from __future__ import annotations

from collections.abc import Mapping

from toolscout.errors import BadInput
from toolscout.records import Tool

SERVER = "apibank"

GROUPS: Mapping[str, str] = {
    "account": "GetUserToken RegisterUser DeleteAccount ModifyPassword ForgotPassword CheckToken AccountInfo "
    "PersonalInfoUpdate",
    "calendar": "AddReminder DeleteReminder ModifyReminder QueryReminder AddMeeting DeleteMeeting ModifyMeeting "
    "QueryMeeting AddAgenda DeleteAgenda ModifyAgenda QueryAgenda AssignPriority AddAlarm DeleteAlarm ModifyAlarm "
    "QueryAlarm CheckTimeConflict GetToday Schedule Memo EmailReminder",
    "finance": "Transfer OpenBankAccount DeleteBankAccount ModifyBankAccount QueryBankAccount QueryExchangeRate "
    "QueryTradeDetail QueryStock QueryBalance TaxCalculator CompanyAnnualReport CompanyBusinessScope",
    "knowledge": "QueryHistoryToday SearchEngine Wiki KnowledgeGraph Dictionary SearchBook OnlineCourseSearch "
    "ExamSchedule AIConferenceSearch ToolSearcher Calculator",
    "models": "ImageCaption SpeechRecognition Translate Summarization ObjectDetection TableQA DocumentQA "
    "SpeechGeneration VideoDescription PaperSummary",
    "messages": "SendMessage SendIM SendEmail ReceiveEmail LikeCount UserPosts OrganizationMembers",
    "health": "QueryHealthData SymptomSearch EmergencyKnowledge AppointmentRegistration CancelRegistration "
    "ModifyRegistration QueryRegistration RecordHealthData",
    "home": "ControlDevice AddScene DeleteScene ModifyScene QueryScene TimedSwitch CancelTimedSwitch QuerySmartHome",
    "leisure": "PlayMusic SearchMovieMusic IdentifySong BookTicket CancelTicket ModifyTicket QueryTicket "
    "MovieRecommendations UserWatchedMovies UserMoviePreferences",
    "travel": "Navigation QueryPlaces SearchAround QueryHotel QueryWeather BookHotel CancelHotelBooking "
    "ModifyHotelBooking QueryHotelBooking BuyTrainTicket CancelTrainTicket ModifyTrainTicket QueryTrainTicket "
    "FlightSearch Geocoding GetWeatherForCoordinates HotelAvailability NearbyRestaurants TravelStatus",
    "work and shopping": "EcommerceSearch ExpressQuery JobSearch RecruitmentInformation GetOccupationSalary "
    "ClothingRecommendation",
}

_OF_NAME = {name: domain for domain, names in GROUPS.items() for name in names.split()}


def domains(tools: Mapping[str, Tool], given: Mapping[str, object] | None = None) -> dict[str, str]:
    """The domain of each tool: what ``given`` says by tool id; else ours for API-Bank's; else its server.

    Raises BadInput if ``given`` has something else than texts.
    """
    if given is not None:
        wrong = next((key for key, value in given.items() if not isinstance(value, str)), None)
        if wrong is not None:
            raise BadInput(f"The domain of {wrong!r} is not a text.", 'Give a JSON object {"tool id": "domain"}.')
    found = {}
    for tool_id, tool in tools.items():
        own = _OF_NAME.get(tool.name, "other") if tool.server_id == SERVER else tool.server_id
        found[tool_id] = str((given or {}).get(tool_id, own))
    return found
