#include "common/s3/s3_store.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/rpc/backoff.h"
#include "common/s3/errors.h"
#include "common/s3/location.h"

namespace cairn {
namespace {

// The reply has the bytes that were asked for, of the same object.
absl::Status CheckPart(const S3Reply& reply, const S3Object& object, uint64_t begin, uint64_t bytes) {
  const std::string etag = PlainEtag(S3HeaderOf(reply, "etag"));
  if (etag != object.etag) {
    return absl::FailedPreconditionError(absl::StrCat("was changed after it was listed: its ETag was ", object.etag,
                                                      ", and is ", etag.empty() ? "missing" : etag.substr(0, 64),
                                                      " now; start the job again"));
  }
  const bool whole = begin == 0 && bytes == object.bytes;
  const std::string range = absl::StrCat("bytes ", begin, "-", begin + bytes - 1, "/", object.bytes);
  if (const std::string given = S3HeaderOf(reply, "content-range"); (!whole || !given.empty()) && given != range) {
    return absl::DataLossError(absl::StrCat("the server gave \"", given.substr(0, 64), "\" in place of \"", range,
                                            "\" (HTTP ", reply.status, "); it does not serve ranges rightly"));
  }
  if (reply.body.size() == bytes) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("the server gave ", reply.body.size(), " of ", bytes, " bytes from ", begin, " on"));
}

}  // namespace

S3Store::S3Store(S3Settings settings, S3Transport* transport, Time time)
    : settings_(std::move(settings)), transport_(transport), time_(std::move(time)) {}

absl::StatusOr<S3Reply> S3Store::Once(const Question& question) {
  const S3Call& call = question.call;
  const std::string address = S3Address(call.bucket, call.key);
  const absl::Time now = time_.clock->Now();
  if (now >= time_.until) return absl::DeadlineExceededError(absl::StrCat(address, ": S3 did not answer in time"));
  S3Request request = SignedRequest(call, settings_, now);
  request.body_bytes_max = question.reply_bytes_max;
  request.attempt_max = std::min(kS3AttemptMax, time_.until - now);
  absl::StatusOr<S3Reply> reply = transport_->Send(request);
  if (!reply.ok()) return Annotate(reply.status(), address);
  const auto has = [&call](absl::string_view name) {
    return std::any_of(call.headers.begin(), call.headers.end(),
                       [&](const auto& header) { return header.first == name; });
  };
  const bool replaces = call.method == "PUT" && has("if-match");
  if (replaces && (reply->status == 412 || (reply->status == 404 && absl::StrContains(reply->body, "NoSuchKey"))))
    return absl::AbortedError(absl::StrCat(address, ": was replaced or removed by another worker meanwhile"));
  if (has("if-none-match") && reply->status == 412)
    return absl::AlreadyExistsError(absl::StrCat(address, ": is there already"));
  if (reply->status / 100 != 2) return ErrorOfReply(*reply, address, question.action, settings_);
  if (question.check != nullptr) CAIRN_RETURN_IF_ERROR(Annotate(question.check(*reply), address));
  return reply;
}

absl::StatusOr<S3Reply> S3Store::Repeat(const Question& question) {
  Backoff backoff({absl::Milliseconds(100), kS3PauseMax}, time_.seed + ++calls_);
  absl::Time begin, until;
  for (int attempt = 1;; ++attempt) {
    absl::StatusOr<S3Reply> reply = Once(question);
    if (!absl::IsUnavailable(reply.status())) return reply;
    const absl::Time now = time_.clock->Now();
    if (attempt == 1) begin = now;
    if (attempt == 1) until = std::min(now + time_.retry_max, time_.until);
    const absl::Duration pause = backoff.Next();
    if (now + pause > until) {
      return absl::UnavailableError(absl::StrCat(reply.status().message(), " (", attempt, " attempts in ",
                                                 absl::FormatDuration(until - begin), ")"));
    }
    if (!time_.pause(pause)) return absl::CancelledError(kS3Stopping);
  }
}

absl::StatusOr<S3Page> S3Store::List(const std::string& bucket, const std::string& prefix, const std::string& token) {
  S3Call call{"GET", bucket, "", {}, {}};
  call.parameters = {{"list-type", "2"}, {"encoding-type", "url"}, {"max-keys", absl::StrCat(kS3PageKeysMax)}};
  if (!prefix.empty()) call.parameters.emplace_back("prefix", prefix);
  if (!token.empty()) call.parameters.emplace_back("continuation-token", token);
  CAIRN_ASSIGN_OR_RETURN(const S3Reply reply, Repeat({call, kS3ReplyBytesMax, "list"}));
  absl::StatusOr<S3Page> page = ParseListing(reply.body);
  if (!page.ok()) return Annotate(page.status(), S3Address(bucket, prefix));
  for (const S3Object& object : page->objects) {
    if (object.key.compare(0, prefix.size(), prefix) == 0) continue;
    return absl::DataLossError(absl::StrCat(S3Address(bucket, object.key), ": was listed below ",
                                            S3Address(bucket, prefix), "; does the endpoint lead to an S3 service?"));
  }
  return page;
}

absl::StatusOr<std::optional<S3Object>> S3Store::Head(const std::string& bucket, const std::string& key) {
  S3Object object{key, "", 0};
  const auto take = [&](const S3Reply& head) -> absl::Status {
    std::string error;
    absl::ParseTime("%a, %d %b %Y %H:%M:%S GMT", S3HeaderOf(head, "last-modified"), &object.modified, &error);
    object.etag = PlainEtag(S3HeaderOf(head, "etag"));
    if (!object.etag.empty() && absl::SimpleAtoi(S3HeaderOf(head, "content-length"), &object.bytes))
      return absl::OkStatus();
    return absl::DataLossError("the reply has no ETag or length; does the endpoint lead to an S3 service?");
  };
  const absl::StatusOr<S3Reply> reply = Repeat({{"HEAD", bucket, key, {}, {}}, 0, "read", take});
  if (absl::IsNotFound(reply.status())) return std::optional<S3Object>();
  CAIRN_RETURN_IF_ERROR(reply.status());
  return std::optional<S3Object>(std::move(object));
}

absl::StatusOr<std::string> S3Store::Get(const std::string& bucket, const S3Object& object, uint64_t begin,
                                         uint64_t bytes) {
  S3Call call{"GET", bucket, object.key, {}, {{"if-match", absl::StrCat("\"", object.etag, "\"")}}};
  if (begin != 0 || bytes != object.bytes)
    call.headers.emplace_back("range", absl::StrCat("bytes=", begin, "-", begin + bytes - 1));
  CAIRN_ASSIGN_OR_RETURN(S3Reply reply,
                         Repeat({call, std::max<size_t>(bytes, kS3SmallReplyBytesMax), "read",
                                 [&](const S3Reply& part) { return CheckPart(part, object, begin, bytes); }}));
  return std::move(reply.body);
}

}  // namespace cairn
