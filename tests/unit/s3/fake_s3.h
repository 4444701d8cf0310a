// An S3 server in memory, for tests: an S3Transport that knows GET of objects and ranges, HEAD, ListObjectsV2, PUT with
// If-None-Match, copies, DELETE, and uploads in parts. It checks that a body has the signed SHA-256.
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

#include "absl/strings/escaping.h"
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
    objects_[bucket][key] = {bytes, Md5Hex(bytes)};
  }
  std::vector<std::string> Keys(const std::string& bucket) const {
    absl::MutexLock lock(&mutex_);
    std::vector<std::string> keys;
    if (const auto it = objects_.find(bucket); it != objects_.end()) {
      for (const auto& [key, object] : it->second) keys.push_back(key);
    }
    return keys;
  }
  std::string BytesOf(const std::string& bucket, const std::string& key) const {
    absl::MutexLock lock(&mutex_);
    return objects_.at(bucket).at(key).bytes;
  }
  // Of uploads that were begun and not ended.
  std::vector<std::string> PendingKeys() const {
    absl::MutexLock lock(&mutex_);
    std::vector<std::string> keys;
    for (const auto& [id, upload] : uploads_) keys.push_back(upload.key);
    return keys;
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
  bool knows_conditions = true, ignores_conditions = false;

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
    const std::string sum = request.body.empty() ? kEmptySha256 : Sha256Hex(request.body);
    if (HeaderOf(request, "x-amz-content-sha256") != sum) return ErrorReply(400, "XAmzContentSHA256Mismatch");
    if (names.second.empty()) return query.contains("uploads") ? ListUploads(query) : List(bucket->second, query);
    const std::string key = Decode(names.second);
    if (query.contains("uploads") || query.contains("uploadId")) return Upload(request, bucket->second, key, query);
    if (request.method == "PUT") return PutObject(request, bucket->second, key);
    if (request.method == "DELETE") {
      bucket->second.erase(key);
      return {204, {}, ""};
    }
    const auto object = bucket->second.find(key);
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

  S3Reply PutObject(const S3Request& request, std::map<std::string, Object>& bucket, const std::string& key) {
    if (!HeaderOf(request, "if-none-match").empty()) {
      if (!knows_conditions) return ErrorReply(501, "NotImplemented");
      if (bucket.contains(key) && !ignores_conditions) return ErrorReply(412, "PreconditionFailed");
    }
    if (const std::string match = HeaderOf(request, "if-match"); !match.empty() && !ignores_conditions) {
      if (!knows_conditions) return ErrorReply(501, "NotImplemented");
      if (!bucket.contains(key)) return ErrorReply(404, "NoSuchKey");
      if (match != absl::StrCat("\"", bucket[key].etag, "\"")) return ErrorReply(412, "PreconditionFailed");
    }
    std::string from = HeaderOf(request, "x-amz-copy-source");
    if (from.empty()) {
      bucket[key] = {std::string(request.body.data(), request.body.size()), Md5Hex(request.body)};
      return {200, {{"etag", absl::StrCat("\"", bucket[key].etag, "\"")}}, ""};
    }
    from = Decode(from.substr(from.find('/', 1) + 1));
    if (!bucket.contains(from)) return ErrorReply(404, "NoSuchKey");
    if (HeaderOf(request, "x-amz-copy-source-if-match") != absl::StrCat("\"", bucket[from].etag, "\""))
      return ErrorReply(412, "PreconditionFailed");
    const Object copied = bucket[from];
    bucket[key] = copied;
    return {200, {}, absl::StrCat("<CopyObjectResult><ETag>&quot;", copied.etag, "&quot;</ETag></CopyObjectResult>")};
  }

  S3Reply Upload(const S3Request& request, std::map<std::string, Object>& bucket, const std::string& key,
                 std::map<std::string, std::string>& query) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (query.contains("uploads")) {
      const std::string id = absl::StrCat("upload-", ++last_upload_);
      uploads_[id] = {key, {}};
      return {200,
              {},
              absl::StrCat("<InitiateMultipartUploadResult><UploadId>", id, "</UploadId>",
                           "</InitiateMultipartUploadResult>")};
    }
    const auto upload = uploads_.find(query["uploadId"]);
    if (upload == uploads_.end() || upload->second.key != key) return ErrorReply(404, "NoSuchUpload");
    if (request.method == "PUT") {
      upload->second.parts[std::stoi(query["partNumber"])] = std::string(request.body.data(), request.body.size());
      return {200, {{"etag", absl::StrCat("\"", Md5Hex(request.body), "\"")}}, ""};
    }
    std::string bytes, sums;
    for (const auto& [number, part] : upload->second.parts) {
      bytes += part;
      sums += absl::HexStringToBytes(Md5Hex(part));
    }
    const size_t parts = upload->second.parts.size();
    uploads_.erase(upload);
    if (request.method == "DELETE") return {204, {}, ""};
    bucket[key] = {bytes, absl::StrCat(Md5Hex(sums), "-", parts)};
    return {200,
            {},
            absl::StrCat("  <CompleteMultipartUploadResult><ETag>&quot;", bucket[key].etag, "&quot;</ETag>",
                         "</CompleteMultipartUploadResult>")};
  }

  // One a page.
  S3Reply ListUploads(std::map<std::string, std::string>& query) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    std::string body = "<ListMultipartUploadsResult>";
    for (auto it = uploads_.upper_bound(query["upload-id-marker"]); it != uploads_.end(); ++it) {
      const std::string key = UriEncode(it->second.key, true);
      if (!absl::StartsWith(it->second.key, query["prefix"])) continue;
      absl::StrAppend(&body, "<Upload><Key>", key, "</Key><UploadId>", it->first, "</UploadId></Upload>",
                      "<IsTruncated>true</IsTruncated><NextKeyMarker>", key, "</NextKeyMarker><NextUploadIdMarker>",
                      it->first, "</NextUploadIdMarker>");
      break;
    }
    return {200, {}, absl::StrCat(body, "<EncodingType>url</EncodingType></ListMultipartUploadsResult>")};
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

  struct Pending {
    std::string key;
    std::map<int, std::string> parts;
  };

  mutable absl::Mutex mutex_;
  std::map<std::string, Pending> uploads_ ABSL_GUARDED_BY(mutex_);  // by id
  int last_upload_ ABSL_GUARDED_BY(mutex_) = 0;
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
