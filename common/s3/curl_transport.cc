#include "common/s3/curl_transport.h"

#include <curl/curl.h>

#include <algorithm>
#include <cstdio>
#include <mutex>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/s3/errors.h"
#include "common/s3/limits.h"

namespace cairn {

struct CurlTransport::Connection {
  CURL* handle = curl_easy_init();
  char error[CURL_ERROR_SIZE] = "";
  ~Connection() { curl_easy_cleanup(handle); }
};

namespace {

struct Transfer {
  S3Reply reply;
  size_t body_bytes_max = 0;
  size_t header_bytes = 0;
  bool too_much = false;
  const std::atomic<bool>* stopping = nullptr;
};

struct Sent {
  absl::string_view body;
  size_t at = 0;
};

size_t OnBody(char* data, size_t, size_t bytes, void* to) {
  auto& transfer = *static_cast<Transfer*>(to);
  if (transfer.reply.body.size() + bytes > transfer.body_bytes_max) {
    transfer.too_much = true;
    return 0;
  }
  transfer.reply.body.append(data, bytes);
  return bytes;
}

size_t OnRead(char* data, size_t, size_t bytes_max, void* from) {
  auto& sent = *static_cast<Sent*>(from);
  const size_t bytes = std::min(bytes_max, sent.body.size() - sent.at);
  std::copy_n(sent.body.data() + sent.at, bytes, data);
  sent.at += bytes;
  return bytes;
}

// Where a kept connection turns out to be closed, libcurl begins anew on another one.
int OnSeek(void* from, curl_off_t offset, int origin) {
  auto& sent = *static_cast<Sent*>(from);
  if (origin != SEEK_SET || offset < 0 || static_cast<size_t>(offset) > sent.body.size()) return CURL_SEEKFUNC_FAIL;
  sent.at = static_cast<size_t>(offset);
  return CURL_SEEKFUNC_OK;
}

size_t OnHeader(char* data, size_t, size_t bytes, void* to) {
  auto& transfer = *static_cast<Transfer*>(to);
  transfer.header_bytes += bytes;
  if (transfer.header_bytes > kS3HeaderBytesMax) {
    transfer.too_much = true;
    return 0;
  }
  const absl::string_view line(data, bytes);
  if (absl::StartsWith(line, "HTTP/")) transfer.reply.headers.clear();  // of an answer before the last: 100
  const size_t colon = line.find(':');
  if (colon == line.npos) return bytes;
  transfer.reply.headers[absl::AsciiStrToLower(line.substr(0, colon))] =
      std::string(absl::StripAsciiWhitespace(line.substr(colon + 1)));
  return bytes;
}

int OnProgress(void* to, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  return *static_cast<const Transfer*>(to)->stopping ? 1 : 0;
}

absl::Status ErrorOf(CURLcode code, const char* text, const Transfer& transfer) {
  const std::string why = absl::StrCat(text[0] == '\0' ? curl_easy_strerror(code) : text);
  if (*transfer.stopping) return absl::CancelledError(kS3Stopping);
  if (transfer.too_much) {
    return absl::ResourceExhaustedError(absl::StrCat("a reply of more than ", transfer.body_bytes_max,
                                                     " bytes, or with too many headers; is this an S3 service?"));
  }
  switch (code) {
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_URL_MALFORMAT: return absl::InvalidArgumentError(why);
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_ISSUER_ERROR:
      return absl::FailedPreconditionError(absl::StrCat("the server's certificate is not accepted: ", why,
                                                        "; AWS_CA_BUNDLE names a file of authorities"));
    case CURLE_PARTIAL_FILE: return absl::UnavailableError(absl::StrCat("the reply was cut: ", why));
    default: return absl::UnavailableError(why);
  }
}

template <typename Value>
void Set(CURL* handle, CURLoption option, Value value) {
  CAIRN_CHECK(curl_easy_setopt(handle, option, value) == CURLE_OK, "an option of libcurl");
}

void SetLimits(CURL* handle, const S3Request& request) {
  Set(handle, CURLOPT_NOSIGNAL, 1L);
  Set(handle, CURLOPT_PROTOCOLS_STR, "http,https");
  Set(handle, CURLOPT_PATH_AS_IS, 1L);  // as it was signed
  Set(handle, CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(absl::ToInt64Milliseconds(kS3ConnectMax)));
  Set(handle, CURLOPT_TIMEOUT_MS,
      static_cast<long>(std::max<int64_t>(absl::ToInt64Milliseconds(request.attempt_max), 1)));
  Set(handle, CURLOPT_LOW_SPEED_TIME, static_cast<long>(absl::ToInt64Seconds(request.silent_max)));
  Set(handle, CURLOPT_LOW_SPEED_LIMIT, static_cast<long>(kS3BytesPerSecondMin));
}

void SetMethod(CURL* handle, const std::string& method, Sent* sent) {
  Set(handle, CURLOPT_NOBODY, method == "HEAD" ? 1L : 0L);
  if (method == "GET" || method == "HEAD") return;
  Set(handle, CURLOPT_CUSTOMREQUEST, method.c_str());
  if (method == "DELETE") return;
  Set(handle, CURLOPT_UPLOAD, 1L);
  Set(handle, CURLOPT_INFILESIZE_LARGE, static_cast<curl_off_t>(sent->body.size()));
  Set(handle, CURLOPT_READFUNCTION, &OnRead);
  Set(handle, CURLOPT_READDATA, static_cast<void*>(sent));
  Set(handle, CURLOPT_SEEKFUNCTION, &OnSeek);
  Set(handle, CURLOPT_SEEKDATA, static_cast<void*>(sent));
}

}  // namespace

CurlTransport::CurlTransport(std::string ca_file, const std::atomic<bool>* stopping)
    : ca_file_(std::move(ca_file)), stopping_(stopping) {
  static std::once_flag once;
  std::call_once(once, [] { CAIRN_CHECK(curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK, "libcurl starts"); });
}

CurlTransport::~CurlTransport() = default;

std::unique_ptr<CurlTransport::Connection> CurlTransport::Take() {
  absl::MutexLock lock(&mutex_);
  if (idle_.empty()) return std::make_unique<Connection>();
  std::unique_ptr<Connection> connection = std::move(idle_.back());
  idle_.pop_back();
  return connection;
}

absl::StatusOr<S3Reply> CurlTransport::Send(const S3Request& request) {
  if (*stopping_) return absl::CancelledError(kS3Stopping);
  std::unique_ptr<Connection> connection = Take();
  CURL* const handle = connection->handle;
  if (handle == nullptr) return absl::UnavailableError("libcurl is out of memory");
  curl_easy_reset(handle);  // keeps its connections
  SetLimits(handle, request);
  Transfer transfer;
  transfer.body_bytes_max = request.body_bytes_max;
  transfer.stopping = stopping_;
  connection->error[0] = '\0';
  Set(handle, CURLOPT_ERRORBUFFER, connection->error);
  Set(handle, CURLOPT_URL, request.url.c_str());
  if (!ca_file_.empty()) Set(handle, CURLOPT_CAINFO, ca_file_.c_str());
  Sent sent{request.body};
  SetMethod(handle, request.method, &sent);
  Set(handle, CURLOPT_WRITEFUNCTION, &OnBody);
  Set(handle, CURLOPT_WRITEDATA, static_cast<void*>(&transfer));
  Set(handle, CURLOPT_HEADERFUNCTION, &OnHeader);
  Set(handle, CURLOPT_HEADERDATA, static_cast<void*>(&transfer));
  Set(handle, CURLOPT_NOPROGRESS, 0L);
  Set(handle, CURLOPT_XFERINFOFUNCTION, &OnProgress);
  Set(handle, CURLOPT_XFERINFODATA, static_cast<void*>(&transfer));
  curl_slist* headers = nullptr;
  const auto add = [&headers](const std::string& line) {
    curl_slist* const longer = curl_slist_append(headers, line.c_str());
    CAIRN_CHECK(longer != nullptr, "out of memory");
    headers = longer;
  };
  for (const auto& [name, value] : request.headers) add(absl::StrCat(name, ": ", value));
  add("Expect:");  // a body is sent at once, not after a round trip
  Set(handle, CURLOPT_HTTPHEADER, headers);
  const CURLcode code = curl_easy_perform(handle);
  curl_slist_free_all(headers);
  if (code != CURLE_OK) return ErrorOf(code, connection->error, transfer);
  long status = 0;
  curl_easy_getinfo(handle, CURLINFO_RESPONSE_CODE, &status);
  transfer.reply.status = static_cast<int>(status);
  absl::MutexLock lock(&mutex_);
  idle_.push_back(std::move(connection));
  return std::move(transfer.reply);
}

}  // namespace cairn
