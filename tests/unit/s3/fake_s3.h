// An S3 server in memory, for tests: an S3Transport that knows GET of objects and ranges, HEAD, and ListObjectsV2.
//
//   FakeS3 s3;
//   s3.Put("bucket", "a/b", "bytes");
//   s3.fault = [](const S3Request& request) -> std::optional<absl::StatusOr<S3Reply>> {...};   // before the server
//   s3.alter = [](const S3Request& request, S3Reply* reply) {...};                             // after it
//
// Thread-safe, but for what a test sets before it asks.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/synchronization/mutex.h"
#include "common/s3/signer.h"
#include "common/s3/transport.h"

namespace cairn {

inline S3Reply ErrorReply(int status, const std::string& code) {
  return {status, {}, absl::StrCat("<Error><Code>", code, "</Code><Message>of a test</Message></Error>")};
}

class FakeS3 : public S3Transport {
 public:
  struct Object {
    std::string bytes, etag;
  };

  void Put(const std::string& bucket, const std::string& key, const std::string& bytes) {
    absl::MutexLock lock(&mutex_);
    objects_[bucket][key] = {bytes, Sha256Hex(bytes).substr(0, 32)};
  }
  void Remove(const std::string& bucket, const std::string& key) {
    absl::MutexLock lock(&mutex_);
    objects_[bucket].erase(key);
  }
  std::vector<std::string> asked() const {  // "GET /bucket/key?query"
    absl::MutexLock lock(&mutex_);
    return asked_;
  }
  size_t asked_for(const std::string& text) const {
    const std::vector<std::string> all = asked();
    return static_cast<size_t>(
        std::count_if(all.begin(), all.end(), [&](const std::string& one) { return absl::StrContains(one, text); }));
  }

  absl::StatusOr<S3Reply> Send(const S3Request& request) override {
    if (fault) {
      if (auto reply = fault(request)) return *std::move(reply);
    }
    absl::MutexLock lock(&mutex_);
    S3Reply reply = Answer(request);
    if (request.method == "HEAD") reply.body.clear();
    if (alter) alter(request, &reply);
    return reply;
  }

  std::function<std::optional<absl::StatusOr<S3Reply>>(const S3Request&)> fault;
  std::function<void(const S3Request&, S3Reply*)> alter;
  size_t page_keys = 1000;

  static std::string HeaderOf(const S3Request& request, const std::string& name) {
    for (const auto& [key, value] : request.headers) {
      if (key == name) return value;
    }
    return "";
  }

 private:
  static std::string Decode(absl::string_view text) {
    std::string out;
    for (size_t i = 0; i < text.size(); ++i) {
      if (text[i] != '%') {
        out.push_back(text[i]);
        continue;
      }
      out.push_back(static_cast<char>(std::stoi(std::string(text.substr(i + 1, 2)), nullptr, 16)));
      i += 2;
    }
    return out;
  }

  S3Reply Answer(const S3Request& request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    absl::string_view url = request.url;
    url.remove_prefix(url.find("://") + 3);
    url.remove_prefix(url.find('/'));
    asked_.push_back(absl::StrCat(request.method, " ", url));
    const std::pair<std::string, std::string> parts = absl::StrSplit(url, absl::MaxSplits('?', 1));
    const std::pair<std::string, std::string> names =
        absl::StrSplit(absl::string_view(parts.first).substr(1), absl::MaxSplits('/', 1));
    std::map<std::string, std::string> query;
    for (const absl::string_view one : absl::StrSplit(parts.second, '&', absl::SkipEmpty())) {
      const std::pair<std::string, std::string> pair = absl::StrSplit(one, absl::MaxSplits('=', 1));
      query[Decode(pair.first)] = Decode(pair.second);
    }
    const auto bucket = objects_.find(Decode(names.first));
    if (bucket == objects_.end()) return ErrorReply(404, "NoSuchBucket");
    if (names.second.empty()) return List(bucket->second, query);
    const auto object = bucket->second.find(Decode(names.second));
    if (object == bucket->second.end()) return ErrorReply(404, "NoSuchKey");
    return Get(request, object->second);
  }

  static S3Reply Get(const S3Request& request, const Object& object) {
    const std::string match = HeaderOf(request, "if-match"), etag = absl::StrCat("\"", object.etag, "\"");
    if (!match.empty() && match != etag) return ErrorReply(412, "PreconditionFailed");
    S3Reply reply{200, {{"etag", etag}, {"content-length", absl::StrCat(object.bytes.size())}}, object.bytes};
    std::string range = HeaderOf(request, "range");
    if (range.empty()) return reply;
    const std::vector<std::string> ends = absl::StrSplit(range.substr(6), '-');
    const size_t begin = std::stoull(ends[0]), end = std::stoull(ends[1]);
    reply.status = 206;
    reply.headers["content-range"] = absl::StrCat("bytes ", begin, "-", end, "/", object.bytes.size());
    reply.body = object.bytes.substr(begin, end - begin + 1);
    return reply;
  }

  S3Reply List(const std::map<std::string, Object>& bucket, std::map<std::string, std::string>& query) {
    std::string body = "<?xml version=\"1.0\"?><ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">";
    size_t count = 0;
    std::string last;
    for (auto it = bucket.upper_bound(query["continuation-token"]); it != bucket.end(); ++it) {
      const auto& [key, object] = *it;
      if (!absl::StartsWith(key, query["prefix"])) continue;
      if (count++ == page_keys) {
        absl::StrAppend(&body, "<IsTruncated>true</IsTruncated><NextContinuationToken>", last,
                        "</NextContinuationToken>");
        break;
      }
      last = key;
      absl::StrAppend(&body, "<Contents><Key>", UriEncode(key, true), "</Key><ETag>&quot;", object.etag,
                      "&quot;</ETag><Size>", object.bytes.size(), "</Size></Contents>");
    }
    absl::StrAppend(&body, "<EncodingType>url</EncodingType></ListBucketResult>");
    return {200, {}, body};
  }

  mutable absl::Mutex mutex_;
  std::map<std::string, std::map<std::string, Object>> objects_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> asked_ ABSL_GUARDED_BY(mutex_);
};

// One that forwards to a server that outlives it: each data set has a transport of its own.
class Forward : public S3Transport {
 public:
  explicit Forward(S3Transport* to) : to_(to) {}
  absl::StatusOr<S3Reply> Send(const S3Request& request) override { return to_->Send(request); }

 private:
  S3Transport* const to_;
};

}  // namespace cairn
