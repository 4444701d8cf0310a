#include "coordinator/core/tokens.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "coordinator/core/limits.h"

namespace cairn {
namespace {

std::string KeyOf(const std::string& id) { return absl::StrCat(kTokenKeyPrefix, id); }

std::string Shown(const v1::Token& token) {
  return absl::StrFormat("token %s (\"%s\" of %s %s)", token.id(), token.name(),
                         token.role() == v1::TOKEN_ADMIN ? "admin" : "user", token.user());
}

// Whether a request is the one that made this token, sent again because its reply was lost.
bool IsSame(const v1::StoredToken& made, const v1::StoredToken& asked) {
  const auto what = [](const v1::StoredToken& stored) {
    const v1::Token& token = stored.token();
    return std::make_tuple(token.name(), token.user(), absl::StrJoin(token.groups(), " "), token.role());
  };
  return made.secret_sha256() == asked.secret_sha256() && what(made) == what(asked);
}

}  // namespace

Tokens::Tokens(Ground& ground, const StoredState& stored) : Component(ground) {
  for (const v1::StoredToken& token : stored.tokens) tokens_[token.token().id()] = token;
}

void Tokens::OnCreate(const CreateToken& event) {
  ForgetExpired();
  v1::StoredToken stored = event.token;
  v1::Token& token = *stored.mutable_token();
  if (const auto found = tokens_.find(token.id()); found != tokens_.end()) {
    if (IsSame(found->second, stored)) return step_.Emit(Reply{event.reply, absl::OkStatus(), found->second.token()});
    return step_.ReplyError(event.reply, absl::AbortedError("the token's id is taken by another one; try again"));
  }
  if (absl::Status room = CheckRoom(token.user()); !room.ok()) return step_.ReplyError(event.reply, std::move(room));
  token.set_created_unix_ms(absl::ToUnixMillis(step_.now()));
  token.set_expires_unix_ms(absl::ToUnixMillis(step_.now() + event.lifetime));
  step_.Emit(Store{KeyOf(token.id()), stored.SerializeAsString()});
  step_.Log({}, "%s is made by %s", Shown(token), token.created_by());
  step_.Emit(Reply{event.reply, absl::OkStatus(), token});
  tokens_[token.id()] = std::move(stored);
  ++changes_;
}

void Tokens::OnRevoke(const RevokeToken& event) {
  const auto found = tokens_.find(event.id);
  if (found == tokens_.end() || !(event.who.everything || found->second.token().user() == event.who.user)) {
    return step_.ReplyError(
        event.reply,
        absl::NotFoundError("there is no such token, or it is not yours; `cairn token list` shows yours by their ids"));
  }
  const v1::Token token = found->second.token();
  tokens_.erase(found);
  ++changes_;
  step_.Emit(Store{KeyOf(token.id()), std::nullopt});
  step_.Log({}, "%s is revoked", Shown(token));
  step_.Emit(Reply{event.reply, absl::OkStatus(), token});
}

void Tokens::ForgetExpired() {
  for (auto it = tokens_.begin(); it != tokens_.end();) {
    if (step_.now() - absl::FromUnixMillis(it->second.token().expires_unix_ms()) < kTokensKeptAfterExpiry) {
      ++it;
      continue;
    }
    step_.Emit(Store{KeyOf(it->first), std::nullopt});
    it = tokens_.erase(it);
    ++changes_;
  }
}

absl::Status Tokens::CheckRoom(const std::string& user) const {
  if (tokens_.size() >= kTokensMax) {
    return absl::ResourceExhaustedError(
        absl::StrFormat("there are %d tokens, the most there can be; revoke some", kTokensMax));
  }
  const auto of_user = std::count_if(tokens_.begin(), tokens_.end(),
                                     [&](const auto& entry) { return entry.second.token().user() == user; });
  if (static_cast<size_t>(of_user) < kTokensOfUserMax) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrFormat("%s has %d tokens, the most there can be of one user; revoke some", user, kTokensOfUserMax));
}

}  // namespace cairn
