#include "coordinator/node/token_service.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/rpc/limits.h"
#include "common/rpc/peer.h"
#include "common/rpc/token.h"
#include "coordinator/core/limits.h"

namespace cairn {
namespace {

constexpr char kService[] = "TokenService";

absl::Status CheckNameOf(const char* field, const std::string& name) {
  if (IsCallerName(name)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, ": give 1 to ", kCallerNameBytesMax, " of the characters A-Z a-z 0-9 . _ - @"));
}

absl::Status CheckRequest(const v1::CreateTokenRequest& request) {
  CAIRN_RETURN_IF_ERROR(CheckNameOf("name", request.name()));
  CAIRN_RETURN_IF_ERROR(CheckNameOf("user", request.user()));
  if (request.groups_size() > kTokenGroupsMax) {
    return absl::InvalidArgumentError(
        absl::StrFormat("groups: %d, at most %d are possible", request.groups_size(), kTokenGroupsMax));
  }
  for (const std::string& group : request.groups()) CAIRN_RETURN_IF_ERROR(CheckNameOf("groups", group));
  if (request.role() != v1::TOKEN_USER && request.role() != v1::TOKEN_ADMIN)
    return absl::InvalidArgumentError("role: give TOKEN_USER or TOKEN_ADMIN");
  const bool made = !request.id().empty() || !request.secret_sha256().empty();
  if (made && !IsTokenId(request.id())) {
    return absl::InvalidArgumentError(
        "id: give 16 hexadecimal digits, those of the token that you have made, or neither id nor secret_sha256");
  }
  if (made && request.secret_sha256().size() != kSecretHashBytes) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "secret_sha256: %d bytes; give the %d of the SHA-256 of the secret's digits, or neither id nor secret_sha256",
        request.secret_sha256().size(), kSecretHashBytes));
  }
  if (request.lifetime_s() == 0) return absl::OkStatus();
  if (request.lifetime_s() < absl::ToInt64Seconds(kTokenLifetimeMin) ||
      request.lifetime_s() > absl::ToInt64Seconds(kTokenLifetimeMax)) {
    return absl::InvalidArgumentError(absl::StrFormat("lifetime_s: %d is not in [%d,%d]: a minute to 366 days",
                                                      request.lifetime_s(), absl::ToInt64Seconds(kTokenLifetimeMin),
                                                      absl::ToInt64Seconds(kTokenLifetimeMax)));
  }
  return absl::OkStatus();
}

absl::Status CheckMayTell(const grpc::CallbackServerContext& context, const TokenTable* tokens) {
  if (tokens == nullptr) {
    return absl::FailedPreconditionError(
        "this coordinator takes no tokens; start cairn-coordinator with --accept-tokens");
  }
  if (!IsOverheard(context)) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "the token would go to you over a connection without TLS, where anyone on the way could read it; give --tls-dir, "
      "or ask on the coordinator's machine");
}

// made: here; nullopt: by who asks.
v1::StoredToken ToStore(const v1::CreateTokenRequest& request, const std::optional<TokenText>& made,
                        const Caller& maker) {
  v1::StoredToken stored;
  v1::Token& token = *stored.mutable_token();
  token.set_id(made ? made->id : request.id());
  token.set_name(request.name());
  token.set_user(request.user());
  *token.mutable_groups() = request.groups();
  token.set_role(request.role());
  token.set_created_by(maker.Shown());
  stored.set_secret_sha256(made ? made->SecretHash() : request.secret_sha256());
  return stored;
}

}  // namespace

grpc::ServerUnaryReactor* TokenServiceImpl::CreateToken(grpc::CallbackServerContext* context,
                                                        const v1::CreateTokenRequest* request,
                                                        v1::CreateTokenResponse* response) {
  const absl::StatusOr<Caller> caller = guard_.Admit(*context, kService, "CreateToken");
  if (!caller.ok()) return Refused(context, caller.status());
  absl::Status status = CheckRequest(*request);
  status.Update(CheckMayTell(*context, guard_.tokens));
  const std::string whose = absl::StrCat(request->role() == v1::TOKEN_ADMIN ? "admin " : "user ", request->user());
  const Audit audit(guard_.audit, *caller, *context, "CreateToken", whose);
  std::optional<TokenText> made;
  if (request->id().empty()) {
    absl::StatusOr<TokenText> text = NewToken();
    status.Update(text.status());
    if (text.ok()) made = *std::move(text);
  }
  if (!status.ok()) {
    audit.Tell(status);
    return Refused(context, status);
  }
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const absl::Duration lifetime =
      request->lifetime_s() == 0 ? kTokenLifetimeDefault : absl::Seconds(request->lifetime_s());
  driver_->Call(
      MachineOf(context->peer()),
      [stored = ToStore(*request, made, *caller), lifetime](ReplyToken reply) {
        return cairn::CreateToken{reply, stored, lifetime};
      },
      [this, context, reactor, request, response, made, who = *caller, whose](const absl::Status& outcome,
                                                                              const ReplyBody& body) {
        if (const auto* token = std::get_if<v1::Token>(&body); outcome.ok() && token != nullptr) {
          *response->mutable_token() = *token;
          if (made) response->set_text(made->Text());
        }
        const std::string& id = made ? made->id : request->id();
        Audit(guard_.audit, who, *context, "CreateToken", absl::StrCat(whose, ", token ", id)).Tell(outcome);
        reactor->Finish(ToGrpc(outcome, context));
      });
  return reactor;
}

grpc::ServerUnaryReactor* TokenServiceImpl::ListTokens(grpc::CallbackServerContext* context,
                                                       const v1::ListTokensRequest*, v1::ListTokensResponse* response) {
  const absl::StatusOr<Caller> caller = guard_.Admit(*context, kService, "ListTokens");
  if (!caller.ok()) return Refused(context, caller.status());
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  driver_->Query(
      MachineOf(context->peer()),
      [reactor, response, who = RequesterOf(*caller)](const ClusterCore& core, absl::Time) {
        for (const auto& [id, stored] : core.tokens().all()) {
          if (who.everything || stored.token().user() == who.user) *response->add_tokens() = stored.token();
        }
        reactor->Finish(grpc::Status::OK);
      },
      Refuse(context, reactor));
  return reactor;
}

grpc::ServerUnaryReactor* TokenServiceImpl::RevokeToken(grpc::CallbackServerContext* context,
                                                        const v1::RevokeTokenRequest* request, v1::Token* response) {
  const absl::StatusOr<Caller> caller = guard_.Admit(*context, kService, "RevokeToken");
  if (!caller.ok()) return Refused(context, caller.status());
  // By its length no text of a token, which may be given in place of its id, gets into the audit log.
  if (request->id().size() > kTokenIdBytesMax) {
    return Refused(context,
                   absl::InvalidArgumentError("id: give the token's id, 16 hexadecimal digits, as `cairn token "
                                              "list` shows it"));
  }
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  driver_->Call(
      MachineOf(context->peer()),
      [id = request->id(), who = RequesterOf(*caller)](ReplyToken reply) {
        return cairn::RevokeToken{reply, id, who};
      },
      FinishWith(context, reactor, response,
                 Audit(guard_.audit, *caller, *context, "RevokeToken", absl::StrCat("token ", request->id()))));
  return reactor;
}

grpc::ServerUnaryReactor* TokenServiceImpl::Identify(grpc::CallbackServerContext* context, const v1::IdentifyRequest*,
                                                     v1::Identity* response) {
  const absl::StatusOr<Caller> caller = guard_.Admit(*context, kService, "Identify");
  if (!caller.ok()) return Refused(context, caller.status());
  response->set_user(caller->user());
  response->mutable_groups()->Assign(caller->groups.begin(), caller->groups.end());
  response->set_admin(caller->Is(CallerRole::kAdmin));
  response->set_token_id(caller->token_id);
  return Refused(context, absl::OkStatus());
}

std::function<void(const std::map<std::string, v1::StoredToken>*, const absl::Status&)> TokensTo(
    std::shared_ptr<TokenTable> table) {
  if (table == nullptr) return nullptr;
  return [table = std::move(table)](const std::map<std::string, v1::StoredToken>* tokens, const absl::Status& why) {
    if (tokens == nullptr) return table->Unset(why);
    std::map<std::string, TokenEntry> entries;
    for (const auto& [id, stored] : *tokens) {
      const v1::Token& token = stored.token();
      TokenEntry& entry = entries[id];
      entry.secret_hash = stored.secret_sha256();
      const CallerRole role = token.role() == v1::TOKEN_ADMIN ? CallerRole::kAdmin : CallerRole::kUser;
      entry.caller.names[role] = token.user();
      entry.caller.groups.insert(token.groups().begin(), token.groups().end());
      entry.caller.token_id = id;
      entry.expires = absl::FromUnixMillis(token.expires_unix_ms());
    }
    table->Set(std::move(entries));
  };
}

}  // namespace cairn
