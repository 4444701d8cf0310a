#include "common/rpc/access.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "common/rpc/caller_certificate.h"
#include "common/rpc/limits.h"
#include "common/rpc/token.h"
#include "common/rpc/token_table.h"

namespace cairn {
namespace {

constexpr char kScheme[] = "cairn://";
constexpr std::array kRoles = {CallerRole::kCoordinator, CallerRole::kPs, CallerRole::kWorker, CallerRole::kUser,
                               CallerRole::kAdmin};

constexpr unsigned Bit(CallerRole role) { return 1u << static_cast<unsigned>(role); }
constexpr unsigned kPeople = Bit(CallerRole::kUser) | Bit(CallerRole::kAdmin);
constexpr unsigned kNodes = Bit(CallerRole::kPs) | Bit(CallerRole::kWorker);
constexpr unsigned kAll = kPeople | kNodes | Bit(CallerRole::kCoordinator);

struct Row {
  const char* method;
  unsigned roles;
};
// The table of docs/security.md. What a user may do to a job of another user is decided with the job.
constexpr Row kTable[] = {
    {"/cairn.v1.JobService/Submit", kPeople},
    {"/cairn.v1.JobService/CheckJob", kPeople},
    {"/cairn.v1.JobService/ListJobs", kPeople},
    {"/cairn.v1.JobService/GetJob", kPeople},
    {"/cairn.v1.JobService/WatchJob", kPeople},
    {"/cairn.v1.JobService/CancelJob", kPeople},
    {"/cairn.v1.JobService/DeleteJob", kPeople},
    {"/cairn.v1.JobService/Evaluate", kPeople},
    {"/cairn.v1.JobService/Predict", kPeople},
    {"/cairn.v1.JobService/ListNodes", kPeople | kNodes},
    {"/cairn.v1.JobService/DrainNode", Bit(CallerRole::kAdmin) | kNodes},  // a node: itself
    {"/cairn.v1.JobService/ListEvents", kPeople},
    {"/cairn.v1.JobService/ReadLog", kPeople},  // a user: of a job
    {"/cairn.v1.JobService/StartTrace", kPeople},
    {"/cairn.v1.JobService/ReadTrace", kPeople},
    {"/cairn.v1.JobService/EndTrace", kPeople},
    {"/cairn.v1.TokenService/CreateToken", Bit(CallerRole::kAdmin)},
    {"/cairn.v1.TokenService/ListTokens", kPeople},   // a user: their own
    {"/cairn.v1.TokenService/RevokeToken", kPeople},  // a user: their own
    {"/cairn.v1.TokenService/Identify", kPeople},
    {"/cairn.v1.Coordinator/Session", kNodes},
    {"/cairn.v1.ParameterServer/Exchange", kNodes},
    {"/cairn.v1.Bench/Prepare", kPeople | kNodes},
    {"/cairn.v1.Bench/Stream", kPeople | kNodes},
    {"/grpc.health.v1.Health/Check", kAll},
    {"/grpc.health.v1.Health/Watch", kAll},
    {"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", kPeople},
};

bool IsName(absl::string_view name, bool of_node) {
  if (of_node && name == "*") return true;
  return !name.empty() && name.size() <= kCallerNameBytesMax && std::all_of(name.begin(), name.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '_' || c == '-' || c == '@';
  });
}

std::string RolesText(unsigned roles) {
  std::vector<std::string> names;
  for (const CallerRole role : kRoles) {
    if ((roles & Bit(role)) != 0) names.emplace_back(RoleName(role));
  }
  return absl::StrJoin(names, ", ");
}

absl::Status Denied(absl::string_view what) {
  return absl::PermissionDeniedError(absl::StrCat(what, "; see docs/security.md"));
}

// Never destroyed, as Observer.
std::shared_ptr<const TokenTable>& Tokens() {
  static std::shared_ptr<const TokenTable>& tokens = *new std::shared_ptr<const TokenTable>;
  return tokens;
}

absl::Status TakesNoTokens() {
  return absl::UnauthenticatedError(
      "this daemon takes no tokens: cairn-coordinator does with --accept-tokens; else use a certificate (--tls-dir) "
      "and "
      "no token");
}

absl::string_view ToView(grpc::string_ref text) { return {text.data(), text.size()}; }

// The caller that a call's token names; nullopt: it has none. Errors: as CallerOf.
template <typename Metadata>
absl::StatusOr<std::optional<Caller>> CallerOfToken(const Metadata& metadata, const TokenTable* tokens,
                                                    std::string* known_id) {
  const auto given = metadata.equal_range(kTokenMetadata);
  if (given.first == given.second) return std::optional<Caller>();
  if (tokens == nullptr) return TakesNoTokens();
  if (std::next(given.first) != given.second) return absl::UnauthenticatedError("the call has two `authorization`s");
  CAIRN_ASSIGN_OR_RETURN(Caller caller, tokens->Find(ToView(given.first->second), absl::Now(), known_id));
  return std::optional<Caller>(std::move(caller));
}

std::string CommonNameOf(const grpc::AuthContext& context) {
  const std::vector<grpc::string_ref> names = context.FindPropertyValues(GRPC_X509_CN_PROPERTY_NAME);
  return names.empty() ? "" : absl::CHexEscape(absl::string_view(names[0].data(), names[0].size()));
}

// Never destroyed: gRPC's threads may use it until the process ends.
AccessObserver& Observer() {
  static AccessObserver& observer = *new AccessObserver;
  return observer;
}

}  // namespace

const char* RoleName(CallerRole role) {
  switch (role) {
    case CallerRole::kCoordinator: return "coordinator";
    case CallerRole::kPs: return "ps";
    case CallerRole::kWorker: return "worker";
    case CallerRole::kUser: return "user";
    case CallerRole::kAdmin: return "admin";
  }
  return "";
}

std::string Caller::user() const {
  for (const CallerRole role : {CallerRole::kUser, CallerRole::kAdmin}) {
    if (const auto name = names.find(role); name != names.end()) return name->second;
  }
  return "";
}

std::string Caller::Shown() const {
  if (names.empty() && unrestricted) return "anybody (no TLS)";
  if (names.empty() && !token_id.empty()) return absl::StrCat("refused token ", token_id);
  if (names.empty()) return common_name.empty() ? "no role" : absl::StrCat("no role, CN ", common_name);
  const std::string shown = absl::StrJoin(names, ", ", [](std::string* out, const auto& entry) {
    absl::StrAppend(out, RoleName(entry.first), " ", entry.second);
  });
  return token_id.empty() ? shown : absl::StrCat(shown, ", token ", token_id);
}

absl::StatusOr<Caller> CallerOfUris(absl::Span<const std::string> uris) {
  Caller caller;
  for (const std::string& uri : uris) {
    absl::string_view rest = uri;
    if (!absl::ConsumePrefix(&rest, kScheme)) continue;
    const size_t slash = rest.find('/');
    const absl::string_view kind = rest.substr(0, slash);
    const absl::string_view name = slash == rest.npos ? "" : rest.substr(slash + 1);
    const auto role =
        std::find_if(kRoles.begin(), kRoles.end(), [&](CallerRole known) { return kind == RoleName(known); });
    const bool person = kind == "group" || kind == RoleName(CallerRole::kUser) || kind == RoleName(CallerRole::kAdmin);
    if ((role == kRoles.end() && kind != "group") || !IsName(name, !person)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "\"", absl::CHexEscape(uri), "\" is not cairn://ROLE/NAME with a role of ", RolesText(kAll),
          " or group, and a name of 1 to ", kCallerNameBytesMax, " of the characters A-Z a-z 0-9 . _ - @"));
    }
    if (kind == "group") {
      caller.groups.emplace(name);
    } else if (!caller.names.emplace(*role, name).second) {
      return absl::InvalidArgumentError(absl::StrCat("it has the role ", kind, " twice"));
    }
  }
  return caller;
}

absl::StatusOr<Caller> CallerOf(const grpc::AuthContext& context) {
  // Not whether the peer is authenticated: gRPC says no of a certificate without any name.
  const std::vector<grpc::string_ref> security = context.FindPropertyValues(GRPC_TRANSPORT_SECURITY_TYPE_PROPERTY_NAME);
  if (security.empty() || security[0] == "insecure") return Caller{.unrestricted = true};
  std::vector<std::string> uris;
  for (const grpc::string_ref& uri : context.FindPropertyValues(GRPC_PEER_URI_PROPERTY_NAME)) {
    uris.emplace_back(uri.data(), uri.size());
  }
  absl::StatusOr<Caller> caller = CallerOfUris(uris);
  if (!caller.ok()) return Denied(absl::StrCat("your certificate: ", caller.status().message()));
  caller->common_name = CommonNameOf(context);
  caller->has_certificate = !context.FindPropertyValues(GRPC_X509_PEM_CERT_PROPERTY_NAME).empty();
  return caller;
}

Caller CallerOf(const grpc::ServerContextBase& context) {
  const std::shared_ptr<const grpc::AuthContext> authenticated = context.auth_context();
  if (authenticated == nullptr) return Caller{.unrestricted = true};
  absl::StatusOr<Caller> caller = CallerOf(*authenticated);
  return caller.ok() ? *std::move(caller) : Caller{};
}

absl::StatusOr<Caller> CallerOf(const grpc::ServerContextBase& context, const TokenTable* tokens,
                                std::string* known_id) {
  CAIRN_ASSIGN_OR_RETURN(std::optional<Caller> by_token, CallerOfToken(context.client_metadata(), tokens, known_id));
  if (!by_token) {
    const std::shared_ptr<const grpc::AuthContext> authenticated = context.auth_context();
    if (authenticated == nullptr) return Caller{.unrestricted = true};
    CAIRN_RETURN_IF_ERROR(CallerCertificate(authenticated.get()).Check(absl::Now()));
    return CallerOf(*authenticated);
  }
  if (IsOverheard(context)) {
    return absl::UnauthenticatedError(
        absl::StrCat("your token came over a connection without TLS, where anyone on the way could read it: revoke "
                     "token ",
                     by_token->token_id, " with `cairn token revoke`, and give --tls-dir"));
  }
  return *std::move(by_token);
}

bool IsOverheard(const grpc::ServerContextBase& context) {
  const std::shared_ptr<const grpc::AuthContext> authenticated = context.auth_context();
  if (authenticated != nullptr) {
    const auto security = authenticated->FindPropertyValues(GRPC_TRANSPORT_SECURITY_TYPE_PROPERTY_NAME);
    if (!security.empty() && security[0] != "insecure") return false;
  }
  const std::string peer = context.peer();
  for (const char* here :
       {"unix:", "ipv4:127.", "ipv6:[::1]:", "ipv6:%5B::1%5D:", "ipv6:[::ffff:127.", "ipv6:%5B::ffff:127."}) {
    if (absl::StartsWith(peer, here)) return false;
  }
  return true;
}

bool IsCallerName(absl::string_view name) { return IsName(name, /*of_node=*/false); }

void AcceptTokens(std::shared_ptr<const TokenTable> tokens) { Tokens() = std::move(tokens); }

bool TokensAreAccepted() { return Tokens() != nullptr; }

absl::Status CheckAccess(absl::string_view method, const Caller& caller) {
  if (caller.unrestricted) return absl::OkStatus();
  if (!caller.has_certificate) {
    return absl::UnauthenticatedError(
        absl::StrCat("you gave neither a token nor a certificate: give --token-file, or ",
                     "--tls-dir a folder with tls.crt and tls.key; see docs/security.md"));
  }
  const auto row = std::find_if(std::begin(kTable), std::end(kTable), [&](const Row& r) { return method == r.method; });
  const unsigned roles = row == std::end(kTable) ? 0 : row->roles;
  for (const auto& [role, name] : caller.names) {
    if ((roles & Bit(role)) != 0) return absl::OkStatus();
  }
  if (roles == 0) return Denied(absl::StrCat(absl::CHexEscape(method.substr(0, 100)), " is no method of this cluster"));
  if (caller.names.empty()) {
    return Denied(absl::StrCat("your certificate names no role: it needs a URI cairn://ROLE/NAME in its ",
                               "subjectAltName, as deploy/make_certs.sh writes it; ", method, " is for ",
                               RolesText(roles)));
  }
  return Denied(absl::StrCat(method, " is for ", RolesText(roles), "; your ",
                             caller.token_id.empty() ? "certificate" : "token", " is that of ", caller.Shown()));
}

std::vector<std::string> KnownMethods() {
  std::vector<std::string> methods;
  for (const Row& row : kTable) methods.emplace_back(row.method);
  return methods;
}

absl::Status CheckNodeName(CallerRole role, absl::string_view node, const Caller& caller) {
  if (caller.unrestricted) return absl::OkStatus();
  const auto found = caller.names.find(role);
  if (found == caller.names.end()) {
    return Denied(absl::StrCat("a ", RoleName(role), " needs a certificate with the role ", RoleName(role),
                               "; yours is that of ", caller.Shown()));
  }
  const std::string& name = found->second;
  if (name == "*" || node == name || absl::StartsWith(node, absl::StrCat(name, "-"))) return absl::OkStatus();
  return Denied(absl::StrCat("your certificate is that of the ", RoleName(role), " \"", name, "\": a node with it is ",
                             "named so, or with a \"-\" and more behind it, not \"",
                             absl::CHexEscape(node.substr(0, 100)), "\""));
}

std::string NodeNamePrefix(CallerRole role, const Caller& caller) {
  const auto own = caller.names.find(role);
  return own == caller.names.end() || own->second == "*" ? "" : absl::StrCat(own->second, "-");
}

void ObserveRefusals(AccessObserver observer) { Observer() = std::move(observer); }

absl::Status AdmitCall(absl::string_view method, const grpc::ServerContextBase& context) {
  std::string known_id;
  const absl::StatusOr<Caller> caller = CallerOf(context, Tokens().get(), &known_id);
  // A coordinator that stands by knows no tokens; whether it is well is no secret.
  if (absl::IsUnavailable(caller.status()) && method == "/grpc.health.v1.Health/Check") return absl::OkStatus();
  const absl::Status status = caller.ok() ? CheckAccess(method, *caller) : caller.status();
  if (!status.ok() && Observer()) {
    const std::shared_ptr<const grpc::AuthContext> authenticated = context.auth_context();
    const std::string name = authenticated == nullptr ? "" : CommonNameOf(*authenticated);
    Observer()(std::string(method),
               caller.ok() ? *caller : Caller{.common_name = name, .token_id = std::move(known_id)}, status);
  }
  return status;
}

}  // namespace cairn
