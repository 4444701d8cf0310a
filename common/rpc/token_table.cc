#include "common/rpc/token_table.h"

#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/rpc/token.h"

namespace cairn {
namespace {

constexpr char kNewOne[] = "an admin makes another one with `cairn token create`";

absl::Status Unknown() {
  return absl::UnauthenticatedError(
      absl::StrCat("your token is not known to this cluster: it was revoked, or is another cluster's; ", kNewOne));
}

absl::Status CheckExpiry(const std::string& id, const TokenEntry& entry, absl::Time now) {
  if (now < entry.expires) return absl::OkStatus();
  return absl::UnauthenticatedError(
      absl::StrCat("your token ", id, " expired on ",
                   absl::FormatTime("%Y-%m-%d at %H:%M UTC", entry.expires, absl::UTCTimeZone()), "; ", kNewOne));
}

}  // namespace

void TokenTable::Set(std::map<std::string, TokenEntry> tokens) {
  const absl::MutexLock lock(&mutex_);
  tokens_ = std::move(tokens);
  unset_ = absl::OkStatus();
}

void TokenTable::Unset(const absl::Status& why) {
  const absl::MutexLock lock(&mutex_);
  tokens_.clear();
  unset_ = why;
}

absl::StatusOr<const TokenEntry*> TokenTable::FindId(const std::string& id) const {
  if (!unset_.ok()) return unset_;
  const auto found = tokens_.find(id);
  if (found == tokens_.end()) return Unknown();
  return &found->second;
}

absl::StatusOr<Caller> TokenTable::Find(absl::string_view authorization, absl::Time now, std::string* known_id) const {
  // A scheme's name has no case (RFC 9110, 11.1).
  constexpr absl::string_view kScheme = kTokenScheme;
  const bool bearer = absl::StartsWithIgnoreCase(authorization, kScheme);
  const std::optional<TokenText> token =
      bearer ? ParseToken(authorization.substr(kScheme.size())) : std::optional<TokenText>();
  if (!token) {
    return absl::UnauthenticatedError(
        "the call's `authorization` is not \"Bearer\" and a token, as `cairn token create` prints it");
  }
  const absl::MutexLock lock(&mutex_);
  CAIRN_ASSIGN_OR_RETURN(const TokenEntry* entry, FindId(token->id));
  *known_id = token->id;
  if (!SameHash(token->SecretHash(), entry->secret_hash)) return Unknown();
  CAIRN_RETURN_IF_ERROR(CheckExpiry(token->id, *entry, now));
  return entry->caller;
}

absl::Status TokenTable::Check(const std::string& id, absl::Time now) const {
  const absl::MutexLock lock(&mutex_);
  CAIRN_ASSIGN_OR_RETURN(const TokenEntry* entry, FindId(id));
  return CheckExpiry(id, *entry, now);
}

}  // namespace cairn
