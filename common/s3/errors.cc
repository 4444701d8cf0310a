#include "common/s3/errors.h"

#include <array>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/s3/replies.h"

namespace cairn {
namespace {

struct Known {
  const char* code;  // S3's, or of a reply without a body the HTTP status
  absl::StatusCode status;
  const char* advice;  // {...}: see Advice
};

constexpr auto kDenied = absl::StatusCode::kPermissionDenied;
constexpr auto kAway = absl::StatusCode::kUnavailable;
constexpr auto kMissing = absl::StatusCode::kNotFound;
constexpr auto kEndedBy = absl::StatusCode::kAborted;
constexpr auto kState = absl::StatusCode::kFailedPrecondition;

constexpr char kWrongKeys[] = "check the keys of {source}, and that they are of {endpoint}";
constexpr char kEnded[] = "the session of {source} has ended; give the worker new keys";
constexpr char kRegion[] = "set AWS_REGION to the bucket's region{region}; it is {configured} now";
constexpr char kMayNot[] =
    "the keys of {source} may not {action} it; allow them s3:ListBucket on the bucket and {rights} on its objects";
constexpr char kNotServed[] = "{endpoint} does not serve requests of this kind";
constexpr char kLater[] = "the service is busy or has a fault; try again later";

constexpr std::array kKnown = {
    Known{"AccessDenied", kDenied, kMayNot},
    Known{"AllAccessDisabled", kDenied, kMayNot},
    Known{"InvalidAccessKeyId", kDenied, kWrongKeys},
    Known{"SignatureDoesNotMatch", kDenied, kWrongKeys},
    Known{"ExpiredToken", kDenied, kEnded},
    Known{"InvalidToken", kDenied, kEnded},
    Known{"TokenRefreshRequired", kDenied, kEnded},
    Known{"RequestTimeTooSkewed", kDenied, "this machine's clock differs from the server's{date}; set it (NTP)"},
    Known{"NoSuchBucket", kMissing, "check the bucket in the worker's --root, and the endpoint ({endpoint})"},
    Known{"NoSuchKey", kMissing, "check the path; was the object deleted?"},
    Known{"PreconditionFailed", kState, "the object was changed after it was listed; start the job again"},
    Known{"PermanentRedirect", kState, kRegion},
    Known{"TemporaryRedirect", kState, kRegion},
    Known{"AuthorizationHeaderMalformed", kState, kRegion},
    Known{"InvalidObjectState", kState, "the object is archived; restore it first"},
    Known{"NotImplemented", absl::StatusCode::kUnimplemented, kNotServed},
    Known{"MethodNotAllowed", absl::StatusCode::kUnimplemented, kNotServed},
    Known{"NoSuchUpload", kEndedBy, "another worker has ended this upload: is it of the same checkpoints.dir?"},
    Known{"BadDigest", kAway, "the bytes were changed on their way"},
    Known{"XAmzContentSHA256Mismatch", kAway, "the bytes were changed on their way"},
    Known{"IncompleteBody", kAway, kLater},
    Known{"ConditionalRequestConflict", kAway, kLater},
    Known{"OperationAborted", kAway, kLater},
    Known{"SlowDown", kAway, kLater},
    Known{"ServiceUnavailable", kAway, kLater},
    Known{"InternalError", kAway, kLater},
    Known{"RequestTimeout", kAway, kLater},
};

const Known* KnownOf(const S3Reply& reply, const std::string& code) {
  for (const Known& known : kKnown) {
    if (code == known.code) return &known;
  }
  static constexpr Known kDeniedReply{"", kDenied, kMayNot}, kMissingReply{"", kMissing, "check the path"},
      kChanged{"", kState, "the object was changed after it was listed; start the job again"},
      kMoved{"", kState, kRegion}, kBusy{"", kAway, kLater}, kUnknown{"", absl::StatusCode::kUnimplemented, kNotServed};
  switch (reply.status) {
    case 401:
    case 403: return &kDeniedReply;
    case 404: return &kMissingReply;
    case 412: return &kChanged;
    case 301:
    case 302:
    case 307: return &kMoved;
    case 408:
    case 429: return &kBusy;
    case 405:
    case 501: return &kUnknown;
    default: return reply.status >= 500 ? &kBusy : nullptr;
  }
}

std::string HeaderOf(const S3Reply& reply, const char* name, const char* before) {
  const std::string header = S3HeaderOf(reply, name);
  return header.empty() ? "" : absl::StrCat(before, header.substr(0, 64));
}

const char* RightsFor(absl::string_view action) {
  const bool reads = action == "read" || action == "list";
  return reads ? "s3:GetObject" : "s3:GetObject, s3:PutObject, s3:DeleteObject and s3:AbortMultipartUpload";
}

}  // namespace

absl::Status ErrorOfReply(const S3Reply& reply, const std::string& address, const std::string& action,
                          const S3Settings& settings) {
  const S3ErrorReply error = ParseErrorReply(reply.body);
  const Known* const known = KnownOf(reply, error.code);
  const std::string text = absl::StrCat(address, ": HTTP ", reply.status, error.code.empty() ? "" : " ", error.code,
                                        error.message.empty() ? "" : ": ", error.message);
  if (known == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat(text, "; does ", settings.endpoint.empty() ? "AWS" : settings.endpoint, " serve S3?"));
  }
  const std::string advice =
      absl::StrReplaceAll(known->advice, {{"{source}", settings.source},
                                          {"{action}", action},
                                          {"{rights}", RightsFor(action)},
                                          {"{configured}", settings.region},
                                          {"{endpoint}", settings.endpoint.empty() ? "AWS" : settings.endpoint},
                                          {"{region}", HeaderOf(reply, "x-amz-bucket-region", ", ")},
                                          {"{date}", HeaderOf(reply, "date", ", which says ")}});
  return {known->status, absl::StrCat(text, "; ", advice)};
}

}  // namespace cairn
