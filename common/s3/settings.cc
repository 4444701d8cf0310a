#include "common/s3/settings.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/files.h"
#include "common/s3/limits.h"

namespace cairn {
namespace {

constexpr char kWithoutRegion[] = "us-east-1";  // what servers other than AWS take

using Section = std::map<std::string, std::string>;
struct AwsFile {
  std::string path;
  std::map<std::string, Section> sections;
};

// Lines of `name = value` below `[section]`. Indented lines belong to a value above (nested settings) and are left out.
std::map<std::string, Section> ParseAwsFile(absl::string_view text) {
  std::map<std::string, Section> sections;
  Section* section = nullptr;
  for (const absl::string_view raw : absl::StrSplit(text, '\n')) {
    const absl::string_view line = absl::StripAsciiWhitespace(raw);
    if (line.empty() || line[0] == '#' || line[0] == ';') continue;
    if (line[0] == '[') {
      const absl::string_view name = line.substr(1, line.find(']') - 1);
      section = &sections[std::string(absl::StripAsciiWhitespace(name))];
      continue;
    }
    const size_t equals = line.find('=');
    if (section == nullptr || equals == line.npos || absl::ascii_isspace(static_cast<unsigned char>(raw[0]))) continue;
    (*section)[std::string(absl::StripAsciiWhitespace(line.substr(0, equals)))] =
        std::string(absl::StripAsciiWhitespace(line.substr(equals + 1)));
  }
  return sections;
}

// One that is not there has no sections. These are files of the person who starts the worker, not of a job.
absl::StatusOr<AwsFile> ReadAwsFile(const std::string& path) {
  AwsFile file{path, {}};
  if (path.empty()) return file;
  const FileDescriptor opened(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (opened.get() < 0 && (errno == ENOENT || errno == ENOTDIR)) return file;
  if (opened.get() < 0) return FileError(path, "cannot be read");
  struct stat st {};
  if (::fstat(opened.get(), &st) != 0 || !S_ISREG(st.st_mode) || static_cast<uint64_t>(st.st_size) > kAwsFileBytesMax)
    return absl::InvalidArgumentError(absl::StrCat(path, ": not a file of at most ", kAwsFileBytesMax, " bytes"));
  std::string text(static_cast<size_t>(st.st_size), '\0');
  const ssize_t n = ::read(opened.get(), text.data(), text.size());
  if (n < 0) return FileError(path, "cannot be read");
  text.resize(static_cast<size_t>(n));
  file.sections = ParseAwsFile(text);
  return file;
}

const Section* SectionOf(const AwsFile& file, const std::string& name) {
  const auto it = file.sections.find(name);
  return it == file.sections.end() ? nullptr : &it->second;
}

std::string ValueOf(const Section* section, const std::string& name) {
  if (section == nullptr) return "";
  const auto it = section->find(name);
  return it == section->end() ? "" : it->second;
}

struct Profile {
  std::string name;
  AwsFile credentials_file, config_file;
  const Section* credentials = nullptr;
  const Section* config = nullptr;
  std::string Files() const { return absl::StrCat(credentials_file.path, " or ", config_file.path); }
};

absl::Status ReadProfile(const Environment& environment, Profile* profile) {
  const std::string home = environment("HOME");
  const auto path = [&](const char* variable, const char* below) {
    const std::string given = environment(variable);
    return !given.empty() || home.empty() ? given : home + below;
  };
  CAIRN_ASSIGN_OR_RETURN(profile->credentials_file,
                         ReadAwsFile(path("AWS_SHARED_CREDENTIALS_FILE", "/.aws/credentials")));
  CAIRN_ASSIGN_OR_RETURN(profile->config_file, ReadAwsFile(path("AWS_CONFIG_FILE", "/.aws/config")));
  const std::string given = environment("AWS_PROFILE");
  profile->name = given.empty() ? "default" : given;
  profile->credentials = SectionOf(profile->credentials_file, profile->name);
  profile->config =
      SectionOf(profile->config_file, profile->name == "default" ? "default" : "profile " + profile->name);
  if (!given.empty() && profile->credentials == nullptr && profile->config == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("AWS_PROFILE: there is no profile \"", given, "\" in ", profile->Files()));
  }
  return absl::OkStatus();
}

absl::Status TakeKeys(const Environment& environment, const Profile& profile, S3Settings* settings) {
  settings->access_key = environment("AWS_ACCESS_KEY_ID");
  settings->secret_key = environment("AWS_SECRET_ACCESS_KEY");
  if (!settings->access_key.empty() || !settings->secret_key.empty()) {
    settings->source = "AWS_ACCESS_KEY_ID";
    settings->session_token = environment("AWS_SESSION_TOKEN");
  }
  for (const auto& [section, file] : {std::pair(profile.credentials, &profile.credentials_file.path),
                                      std::pair(profile.config, &profile.config_file.path)}) {
    if (!settings->source.empty() || ValueOf(section, "aws_access_key_id").empty()) continue;
    settings->access_key = ValueOf(section, "aws_access_key_id");
    settings->secret_key = ValueOf(section, "aws_secret_access_key");
    settings->session_token = ValueOf(section, "aws_session_token");
    settings->source = absl::StrCat("profile ", profile.name, " of ", *file);
  }
  if (settings->source.empty()) {
    for (const char* other :
         {"role_arn", "sso_session", "sso_start_url", "credential_process", "web_identity_token_file"}) {
      if (ValueOf(profile.config, other).empty() && ValueOf(profile.credentials, other).empty()) continue;
      return absl::InvalidArgumentError(absl::StrCat("profile ", profile.name, " takes its keys from `", other,
                                                     "`, which Cairn does not do; set AWS_ACCESS_KEY_ID, "
                                                     "AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN to what it gives"));
    }
    return absl::FailedPreconditionError(
        absl::StrCat("no keys for S3: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or write a profile ",
                     profile.name, " with aws_access_key_id and aws_secret_access_key into ", profile.Files()));
  }
  if (settings->access_key.empty() || settings->secret_key.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(settings->source, ": half of the keys is missing: give both, the ",
                                                   "id (AWS_ACCESS_KEY_ID) and the secret (AWS_SECRET_ACCESS_KEY)"));
  }
  return absl::OkStatus();
}

bool IsPlain(absl::string_view text, absl::string_view more) {
  return std::all_of(text.begin(), text.end(), [&](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || more.find(c) != more.npos;
  });
}

absl::Status CheckEndpoint(std::string* endpoint) {
  while (absl::EndsWith(*endpoint, "/")) endpoint->pop_back();
  absl::string_view host = *endpoint;
  const bool scheme = absl::ConsumePrefix(&host, "https://") || absl::ConsumePrefix(&host, "http://");
  if (scheme && !host.empty() && IsPlain(host, ".-_:[]")) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL or endpoint_url: is not of the form http[s]://HOST[:PORT]");
}

// What is sent in a header has no line breaks and the like.
absl::Status CheckTexts(const S3Settings& settings) {
  for (const std::string* text : {&settings.access_key, &settings.secret_key, &settings.session_token}) {
    if (std::all_of(text->begin(), text->end(), [](unsigned char c) { return absl::ascii_isgraph(c); })) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(settings.source, ": one of the keys, or the session token, has characters that none has"));
  }
  if (IsPlain(settings.region, "-") && settings.region.size() <= kS3BucketBytesMax) return absl::OkStatus();
  return absl::InvalidArgumentError("AWS_REGION: is no name of a region, such as eu-west-1");
}

std::string FirstOf(std::initializer_list<std::string> texts) {
  for (const std::string& text : texts) {
    if (!text.empty()) return text;
  }
  return "";
}

}  // namespace

absl::StatusOr<S3Settings> LoadS3Settings(const Environment& environment) {
  Profile profile;
  S3Settings settings;
  CAIRN_RETURN_IF_ERROR(ReadProfile(environment, &profile));
  CAIRN_RETURN_IF_ERROR(TakeKeys(environment, profile, &settings));
  settings.region = FirstOf({environment("AWS_REGION"), environment("AWS_DEFAULT_REGION"),
                             ValueOf(profile.config, "region"), ValueOf(profile.credentials, "region")});
  settings.endpoint = FirstOf({environment("AWS_ENDPOINT_URL_S3"), environment("AWS_ENDPOINT_URL"),
                               ValueOf(profile.config, "endpoint_url"), ValueOf(profile.credentials, "endpoint_url")});
  settings.ca_file = FirstOf({environment("AWS_CA_BUNDLE"), ValueOf(profile.config, "ca_bundle")});
  if (!settings.endpoint.empty()) CAIRN_RETURN_IF_ERROR(CheckEndpoint(&settings.endpoint));
  if (settings.region.empty() && settings.endpoint.empty()) {
    return absl::FailedPreconditionError(
        "no region for S3: set AWS_REGION to that of the bucket, or AWS_ENDPOINT_URL for a server other than AWS");
  }
  if (settings.region.empty()) settings.region = kWithoutRegion;
  CAIRN_RETURN_IF_ERROR(CheckTexts(settings));
  return settings;
}

S3Host HostOf(const S3Settings& settings, absl::string_view bucket) {
  const std::string path = absl::StrCat("/", bucket);
  if (!settings.endpoint.empty()) {
    const std::pair<std::string, std::string> parts = absl::StrSplit(settings.endpoint, absl::MaxSplits("://", 1));
    return {parts.first, parts.second, path};
  }
  const char* const domain = absl::StartsWith(settings.region, "cn-") ? "amazonaws.com.cn" : "amazonaws.com";
  const std::string host = absl::StrCat("s3.", settings.region, ".", domain);
  if (absl::StrContains(bucket, '.') || absl::StrContains(bucket, '_')) return {"https", host, path};
  return {"https", absl::StrCat(bucket, ".", host), ""};
}

}  // namespace cairn
