// cairn token create, list, revoke, whoami.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "client/cli/commands.h"
#include "common/base/files.h"
#include "common/report/figures.h"
#include "common/rpc/token.h"

namespace cairn {
namespace {

using Json = nlohmann::ordered_json;

// "12h", "30d"; seconds. Errors: INVALID_ARGUMENT.
absl::StatusOr<int64_t> ParseLifetime(absl::string_view text) {
  int64_t count = 0;
  const char unit = text.empty() ? '\0' : text.back();
  const int64_t seconds = unit == 'm' ? 60 : unit == 'h' ? 3600 : unit == 'd' ? 86400 : 0;
  if (seconds != 0 && absl::SimpleAtoi(text.substr(0, text.size() - 1), &count) && count > 0 && count <= 1000000)
    return count * seconds;
  return absl::InvalidArgumentError(
      absl::StrFormat("--expires: \"%s\" is no time; give a number and m, h or d, such as 12h or 30d", text));
}

std::string DateText(int64_t unix_ms) {
  return absl::FormatTime("%Y-%m-%d %H:%M", absl::FromUnixMillis(unix_ms), absl::LocalTimeZone());
}

const char* RoleText(const v1::Token& token) { return token.role() == v1::TOKEN_ADMIN ? "admin" : "user"; }

Json ToJson(const v1::Token& token) {
  return {{"id", token.id()},
          {"name", token.name()},
          {"user", token.user()},
          {"groups", std::vector<std::string>(token.groups().begin(), token.groups().end())},
          {"role", RoleText(token)},
          {"created_unix_ms", token.created_unix_ms()},
          {"expires_unix_ms", token.expires_unix_ms()},
          {"created_by", token.created_by()}};
}

// A new file that this user alone can read. Errors: INVALID_ARGUMENT.
absl::StatusOr<FileDescriptor> CreateSecretFile(const std::string& path) {
  FileDescriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (file.get() >= 0) return file;
  return absl::InvalidArgumentError(absl::StrCat(
      "--output: ", path, ": ", absl::ErrnoToStatus(errno, "cannot be created; give a new file").message()));
}

absl::Status WriteSecret(const FileDescriptor& file, const std::string& path, const std::string& text) {
  const std::string line = absl::StrCat(text, "\n");
  if (write(file.get(), line.data(), line.size()) == static_cast<ssize_t>(line.size()) && fsync(file.get()) == 0)
    return absl::OkStatus();
  return absl::ErrnoToStatus(errno, absl::StrCat("--output: ", path, " cannot be written"));
}

}  // namespace

int RunCreateToken(const Globals& globals, const CreateTokenOptions& options) {
  v1::CreateTokenRequest request;
  request.set_name(options.name);
  request.set_user(options.user);
  request.mutable_groups()->Assign(options.groups.begin(), options.groups.end());
  request.set_role(options.role == "admin" ? v1::TOKEN_ADMIN : v1::TOKEN_USER);
  const auto lifetime = ParseLifetime(options.expires);
  if (!lifetime.ok()) return Fail(lifetime.status());
  request.set_lifetime_s(*lifetime);
  const auto made = NewToken();
  if (!made.ok()) return Fail(made.status());
  request.set_id(made->id);
  request.set_secret_sha256(made->SecretHash());
  FileDescriptor file;
  if (!options.output.empty()) {  // before the token is made: nobody has one that could not be written
    auto created = CreateSecretFile(options.output);
    if (!created.ok()) return Fail(created.status());
    file = *std::move(created);
  }
  JobClient client(globals.client);
  const auto answer = client.CreateToken(request);
  absl::Status status = answer.status();
  // A coordinator of the release before makes its own.
  const std::string text = status.ok() && !answer->text().empty() ? answer->text() : made->Text();
  if (status.ok() && !options.output.empty()) {
    status = WriteSecret(file, options.output, text);
    if (!status.ok()) client.RevokeToken(answer->token().id()).IgnoreError();
  }
  if (!status.ok()) {
    if (!options.output.empty()) unlink(options.output.c_str());
    if (absl::IsDeadlineExceeded(answer.status()) || absl::IsUnavailable(answer.status())) {
      status = absl::Status(
          status.code(),
          absl::StrCat(status.message(), "; it may have been made: `cairn token revoke ", made->id, "` takes it back"));
    }
    return Fail(status);
  }
  const v1::Token& token = answer->token();
  if (globals.json) {
    Json line = ToJson(token);
    if (options.output.empty()) line["token"] = text;
    absl::PrintF("%s\n", line.dump());
    return kExitOk;
  }
  if (options.output.empty()) absl::PrintF("%s\n", text);
  absl::FPrintF(stderr, "token %s of %s %s, until %s; %s\n", token.id(), RoleText(token), token.user(),
                DateText(token.expires_unix_ms()),
                options.output.empty() ? "it is not shown again: keep it as a password" : "it is in " + options.output);
  return kExitOk;
}

int RunListTokens(const Globals& globals) {
  const auto answer = JobClient(globals.client).ListTokens();
  if (!answer.ok()) return Fail(answer.status());
  if (globals.json) {
    Json all = Json::array();
    for (const v1::Token& token : answer->tokens()) all.push_back(ToJson(token));
    absl::PrintF("%s\n", Json{{"tokens", all}}.dump());
    return kExitOk;
  }
  if (answer->tokens().empty()) {
    absl::PrintF("no tokens; an admin makes one with `cairn token create`\n");
    return kExitOk;
  }
  std::vector<std::vector<std::string>> rows = {{"ID", "NAME", "ROLE", "USER", "GROUPS", "EXPIRES", "MADE BY"}};
  const int64_t now = absl::ToUnixMillis(absl::Now());
  for (const v1::Token& token : answer->tokens()) {
    rows.push_back({token.id(), token.name(), RoleText(token), token.user(), absl::StrJoin(token.groups(), ","),
                    absl::StrCat(DateText(token.expires_unix_ms()), token.expires_unix_ms() <= now ? ", expired" : ""),
                    token.created_by()});
  }
  absl::PrintF("%s", Table(rows));
  return kExitOk;
}

int RunRevokeToken(const Globals& globals, const std::string& id) {
  // A token in place of its id is not sent, nor shown.
  if (ParseToken(id)) {
    return Fail(absl::InvalidArgumentError(
        "ID: this is a token, which every user of this machine could now have read; give its id alone, the 16 digits "
        "behind \"cairn-\""));
  }
  const auto token = JobClient(globals.client).RevokeToken(id);
  if (!token.ok()) return Fail(token.status());
  if (globals.json) {
    absl::PrintF("%s\n", ToJson(*token).dump());
  } else {
    absl::PrintF("token %s \"%s\" of %s %s is revoked\n", token->id(), token->name(), RoleText(*token), token->user());
  }
  return kExitOk;
}

int RunWhoAmI(const Globals& globals) {
  const auto who = JobClient(globals.client).Identify();
  if (!who.ok()) return Fail(who.status());
  const std::vector<std::string> groups(who->groups().begin(), who->groups().end());
  if (globals.json) {
    absl::PrintF(
        "%s\n",
        Json{{"user", who->user()}, {"groups", groups}, {"admin", who->admin()}, {"token_id", who->token_id()}}.dump());
    return kExitOk;
  }
  absl::PrintF("%s%s%s%s\n", who->user().empty() ? "nobody in particular" : who->user(), who->admin() ? ", admin" : "",
               groups.empty() ? "" : absl::StrCat(", groups ", absl::StrJoin(groups, ", ")),
               who->token_id().empty() ? "" : absl::StrCat(", by token ", who->token_id()));
  return kExitOk;
}

}  // namespace cairn
