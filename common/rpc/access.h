// Who calls a daemon, and what each role may call (docs/security.md).
//
// A certificate names its roles by URIs in its subjectAltName, any number of them: cairn://coordinator/NAME,
// cairn://ps/NAME, cairn://worker/NAME, cairn://user/NAME, cairn://admin/NAME; and its owner's groups by
// cairn://group/NAME. A name has 1 to 128 of the characters A-Z a-z 0-9 . _ - @; a node's may also be "*". Other URIs
// are ignored. Without TLS, and through a Unix socket of this user, a caller may do everything.
//
// A call with a bearer token (token.h) is made by the token's user alone, whatever the connection's certificate says,
// and also without TLS.
//
// Values and pure functions, but for AdmitCall, ObserveRefusals and AcceptTokens; any thread.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/base/status.h"

namespace grpc {
class AuthContext;
class ServerContextBase;
}  // namespace grpc

namespace cairn {

class TokenTable;

enum class CallerRole { kCoordinator, kPs, kWorker, kUser, kAdmin };
const char* RoleName(CallerRole role);

struct Caller {
  bool unrestricted = false;
  std::map<CallerRole, std::string> names;  // of a certificate: its roles, each with its name
  std::set<std::string> groups;
  std::string common_name;  // of the certificate's subject: for people
  bool has_certificate = true;
  std::string token_id;  // of the token that names the caller; empty: the certificate does

  // May do what the role may.
  bool Is(CallerRole role) const { return unrestricted || names.contains(role); }
  // The user's or admin's name, which owns the jobs that it submits; "": it has none.
  std::string user() const;
  // For people: "user alice", "ps host-a, worker host-a".
  std::string Shown() const;
};

// uris: of one certificate. Errors: INVALID_ARGUMENT: a cairn:// URI that is not one of the above, or a role twice.
absl::StatusOr<Caller> CallerOfUris(absl::Span<const std::string> uris);
// Errors: PERMISSION_DENIED: the certificate's URIs are wrong.
absl::StatusOr<Caller> CallerOf(const grpc::AuthContext& context);
// Of a call that AdmitCall admitted.
Caller CallerOf(const grpc::ServerContextBase& context);
// Of a call that takes tokens; null: this daemon takes none. known_id: see TokenTable::Find.
// Errors: those of TokenTable::Find; UNAUTHENTICATED: a token came over a connection that others can listen to, or the
// certificate has expired or was revoked; PERMISSION_DENIED: its URIs are wrong.
absl::StatusOr<Caller> CallerOf(const grpc::ServerContextBase& context, const TokenTable* tokens,
                                std::string* known_id);
// Whether what the call carries can be read by others on the way: neither TLS nor loopback nor a Unix socket.
bool IsOverheard(const grpc::ServerContextBase& context);
// Of a user, a group, a token.
bool IsCallerName(absl::string_view name);

// method: as in ":path", "/cairn.v1.JobService/Submit". Errors: PERMISSION_DENIED says who may call it. A method
// without a row is nobody's.
absl::Status CheckAccess(absl::string_view method, const Caller& caller);
// All methods of the table.
std::vector<std::string> KnownMethods();

// Whether a node may have the name: its certificate's, or one that begins with that and "-". Errors: PERMISSION_DENIED.
absl::Status CheckNodeName(CallerRole role, absl::string_view node, const Caller& caller);

// What the name of a node with this certificate begins with: "", or the certificate's name and "-".
std::string NodeNamePrefix(CallerRole role, const Caller& caller);

// From now on servers with TLS take calls with a token of the table, also from clients without a certificate. Call
// once, before UseTls.
void AcceptTokens(std::shared_ptr<const TokenTable> tokens);
bool TokensAreAccepted();

// CheckAccess of a call that has just come, by its token or certificate. Every handler calls it, or CallGuard::Admit,
// before anything else; RpcServer does so for the services of gRPC. (An AuthMetadataProcessor would do it for all of
// them, but with one gRPC 1.51 aborts the process at a header grpclb_client_stats.) Errors: PERMISSION_DENIED,
// UNAUTHENTICATED, and those of TokenTable::Find; the observer was told.
absl::Status AdmitCall(absl::string_view method, const grpc::ServerContextBase& context);
// Is told of the calls that are refused so; from any thread, must not block for long.
using AccessObserver = std::function<void(const std::string& method, const Caller& caller, const absl::Status& why)>;
// Call once, before the process listens.
void ObserveRefusals(AccessObserver observer);

}  // namespace cairn
