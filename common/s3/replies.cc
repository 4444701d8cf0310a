#include "common/s3/replies.h"

#include <expat.h>

#include <algorithm>
#include <climits>
#include <functional>
#include <memory>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "common/base/text.h"
#include "common/s3/limits.h"

namespace cairn {
namespace {

// Calls a function at the end of each element that has text: with its path, "ListBucketResult/Contents/Key".
class XmlReader {
 public:
  using OnElement = std::function<void(absl::string_view path, const std::string& text)>;
  explicit XmlReader(OnElement on_element) : on_element_(std::move(on_element)) {}

  // What is wrong with it; empty: nothing.
  std::string Read(absl::string_view xml) {
    if (xml.size() > INT_MAX) return "too large";
    parser_.reset(XML_ParserCreate(nullptr));
    if (parser_ == nullptr) return "out of memory";
    XML_SetUserData(parser_.get(), this);
    XML_SetElementHandler(parser_.get(), &Begin, &End);
    XML_SetCharacterDataHandler(parser_.get(), &Text);
    XML_SetStartDoctypeDeclHandler(parser_.get(), &Doctype);
    if (XML_Parse(parser_.get(), xml.data(), static_cast<int>(xml.size()), XML_TRUE) == XML_STATUS_OK) return "";
    return wrong_.empty() ? XML_ErrorString(XML_GetErrorCode(parser_.get())) : wrong_;
  }

 private:
  struct Free {
    void operator()(XML_Parser parser) const { XML_ParserFree(parser); }
  };

  void Refuse(const char* what) {
    wrong_ = what;
    XML_StopParser(parser_.get(), XML_FALSE);
  }
  static void Begin(void* self, const char* name, const char**) {
    auto& reader = *static_cast<XmlReader*>(self);
    if (reader.ends_.size() == static_cast<size_t>(kXmlDepthMax))
      return reader.Refuse("elements are nested too deeply");
    if (reader.path_.size() + std::char_traits<char>::length(name) > kXmlTextBytesMax)
      return reader.Refuse("a name is too long");
    reader.ends_.push_back(reader.path_.size());
    absl::StrAppend(&reader.path_, reader.path_.empty() ? "" : "/", name);
    reader.text_.clear();
  }
  static void End(void* self, const char*) {
    auto& reader = *static_cast<XmlReader*>(self);
    reader.on_element_(reader.path_, reader.text_);
    reader.path_.resize(reader.ends_.back());
    reader.ends_.pop_back();
    reader.text_.clear();
  }
  static void Text(void* self, const char* text, int bytes) {
    auto& reader = *static_cast<XmlReader*>(self);
    if (reader.text_.size() + static_cast<size_t>(bytes) > kXmlTextBytesMax) return reader.Refuse("a text is too long");
    reader.text_.append(text, static_cast<size_t>(bytes));
  }
  static void Doctype(void* self, const char*, const char*, const char*, int) {
    static_cast<XmlReader*>(self)->Refuse("it has a document type");
  }

  const OnElement on_element_;
  std::unique_ptr<XML_ParserStruct, Free> parser_;
  std::string path_, text_, wrong_;
  std::vector<size_t> ends_;  // lengths of the path before each open element
};

// As in a query of a form: %XX is a byte, + a space. False: a % without two digits.
bool UrlDecode(const std::string& text, std::string* out) {
  const auto digit = [](char c) {
    return absl::ascii_isdigit(static_cast<unsigned char>(c)) ? c - '0' : (c | 32) - 'a' + 10;
  };
  out->clear();
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out->push_back(text[i] == '+' ? ' ' : text[i]);
      continue;
    }
    if (i + 2 >= text.size() || !absl::ascii_isxdigit(static_cast<unsigned char>(text[i + 1])) ||
        !absl::ascii_isxdigit(static_cast<unsigned char>(text[i + 2])))
      return false;
    out->push_back(static_cast<char>(digit(text[i + 1]) << 4 | digit(text[i + 2])));
    i += 2;
  }
  return true;
}

// A page as it is read: encoded keys are decoded when all of it is known.
struct Listing {
  S3Page page;
  S3Object object;
  bool is_listing = false, truncated = false, encoded = false;
  bool has_bytes = false;
  std::string wrong;

  void Take(absl::string_view path, const std::string& text) {
    is_listing = is_listing || path == "ListBucketResult";
    if (!absl::ConsumePrefix(&path, "ListBucketResult/")) return;
    if (path == "IsTruncated") truncated = text == "true";
    if (path == "NextContinuationToken") page.next = text;
    if (path == "EncodingType") encoded = text == "url";
    if (path == "Contents/Key") object.key = text;
    if (path == "Contents/ETag") object.etag = PlainEtag(text);
    if (path == "Contents/Size") has_bytes = absl::SimpleAtoi(text, &object.bytes);
    if (path != "Contents") return;
    if (object.key.empty() || object.etag.empty() || !has_bytes) wrong = "an object without key, ETag or size";
    page.objects.push_back(std::exchange(object, {}));
    has_bytes = false;
    if (page.objects.size() > kS3PageKeysMax) wrong = "more objects than were asked for";
  }
};

// The same for uploads that were not ended.
struct UploadsListing {
  S3UploadsPage page;
  S3PendingUpload upload;
  bool is_listing = false, truncated = false, encoded = false;
  std::string wrong;

  void Take(absl::string_view path, const std::string& text) {
    is_listing = is_listing || path == "ListMultipartUploadsResult";
    if (!absl::ConsumePrefix(&path, "ListMultipartUploadsResult/")) return;
    if (path == "IsTruncated") truncated = text == "true";
    if (path == "NextKeyMarker") page.next.key = text;
    if (path == "NextUploadIdMarker") page.next.id = text;
    if (path == "EncodingType") encoded = text == "url";
    if (path == "Upload/Key") upload.key = text;
    if (path == "Upload/UploadId") upload.id = text;
    if (path != "Upload") return;
    if (upload.key.empty() || upload.id.empty()) wrong = "an upload without key or id";
    page.uploads.push_back(std::exchange(upload, {}));
    if (page.uploads.size() > kS3PageKeysMax) wrong = "more uploads than were asked for";
  }
};

// What AWS sends before the document, so that nobody takes it for dead.
absl::string_view WithoutSpaceBefore(absl::string_view xml) { return absl::StripLeadingAsciiWhitespace(xml); }

absl::Status NoReply(absl::string_view what, absl::string_view wrong) {
  return absl::DataLossError(
      absl::StrCat("the reply is no ", what, ": ", wrong, "; does the endpoint lead to an S3 service?"));
}

}  // namespace

std::string PlainEtag(absl::string_view etag) {
  if (absl::ConsumePrefix(&etag, "\"")) absl::ConsumeSuffix(&etag, "\"");
  return std::string(etag);
}

absl::StatusOr<S3Page> ParseListing(absl::string_view xml) {
  Listing listing;
  XmlReader reader([&](absl::string_view path, const std::string& text) { listing.Take(path, text); });
  std::string wrong = reader.Read(xml);
  if (wrong.empty()) wrong = listing.wrong;
  if (wrong.empty() && !listing.is_listing) wrong = "another document";
  if (wrong.empty() && listing.truncated && listing.page.next.empty()) wrong = "there is more, but no token for it";
  if (!listing.truncated) listing.page.next.clear();
  for (S3Object& object : listing.page.objects) {
    std::string key;
    if (!listing.encoded || !wrong.empty()) break;
    if (!UrlDecode(object.key, &key)) wrong = "a key that is not URL-encoded";
    object.key = std::move(key);
  }
  if (wrong.empty()) return std::move(listing.page);
  return NoReply("listing of objects", wrong);
}

absl::StatusOr<S3UploadsPage> ParseUploads(absl::string_view xml) {
  UploadsListing listing;
  XmlReader reader([&](absl::string_view path, const std::string& text) { listing.Take(path, text); });
  std::string wrong = reader.Read(xml);
  if (wrong.empty()) wrong = listing.wrong;
  if (wrong.empty() && !listing.is_listing) wrong = "another document";
  if (wrong.empty() && listing.truncated && listing.page.next.key.empty()) wrong = "there is more, but not where";
  if (!listing.truncated) listing.page.next = {};
  std::vector<std::string*> keys{&listing.page.next.key};
  for (S3PendingUpload& upload : listing.page.uploads) keys.push_back(&upload.key);
  for (std::string* key : keys) {
    std::string decoded;
    if (!listing.encoded || !wrong.empty()) break;
    if (!UrlDecode(*key, &decoded)) wrong = "a key that is not URL-encoded";
    *key = std::move(decoded);
  }
  if (wrong.empty()) return std::move(listing.page);
  return NoReply("listing of uploads", wrong);
}

absl::StatusOr<std::string> ParseUploadId(absl::string_view xml) {
  std::string id;
  XmlReader reader([&](absl::string_view path, const std::string& text) {
    if (path == "InitiateMultipartUploadResult/UploadId") id = text;
  });
  const std::string wrong = reader.Read(xml);
  if (wrong.empty() && !id.empty()) return id;
  return NoReply("upload that was begun", wrong.empty() ? "it has no id" : wrong);
}

absl::StatusOr<std::string> ParseResultEtag(absl::string_view xml, absl::string_view root) {
  const absl::string_view document = WithoutSpaceBefore(xml);
  std::string etag;
  const std::string wanted = absl::StrCat(root, "/ETag");
  XmlReader reader([&](absl::string_view path, const std::string& text) {
    if (path == wanted) etag = PlainEtag(text);
  });
  const std::string wrong = reader.Read(document);
  if (wrong.empty() && !etag.empty()) return etag;
  if (const S3ErrorReply error = ParseErrorReply(document); !error.code.empty())
    return absl::UnavailableError(absl::StrCat("HTTP 200, but ", error.code, ": ", error.message));
  return NoReply(root, wrong.empty() ? "it has no ETag" : wrong);
}

std::string EncodeParts(const std::vector<std::string>& etags) {
  std::string xml = "<CompleteMultipartUpload xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">";
  for (size_t i = 0; i < etags.size(); ++i) {
    const std::string etag = absl::StrReplaceAll(etags[i], {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}});
    absl::StrAppend(&xml, "<Part><PartNumber>", i + 1, "</PartNumber><ETag>&quot;", etag, "&quot;</ETag></Part>");
  }
  return xml + "</CompleteMultipartUpload>";
}

S3ErrorReply ParseErrorReply(absl::string_view xml) {
  S3ErrorReply reply;
  XmlReader reader([&](absl::string_view path, const std::string& text) {
    if (path == "Error/Code") reply.code = text;
    if (path == "Error/Message") reply.message = text;
  });
  if (!reader.Read(xml).empty()) return {};
  for (std::string* text : {&reply.code, &reply.message}) {
    std::replace_if(
        text->begin(), text->end(), [](unsigned char c) { return absl::ascii_iscntrl(c); }, ' ');
    *text = std::string(CutUtf8(ToUtf8(*text), kS3ErrorTextBytesMax));
  }
  return reply;
}

}  // namespace cairn
