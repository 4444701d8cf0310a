// Who calls a daemon, and what each role may call (docs/security.md).
//
// A certificate names its roles by URIs in its subjectAltName, any number of them: cairn://coordinator/NAME,
// cairn://ps/NAME, cairn://worker/NAME, cairn://user/NAME, cairn://admin/NAME; and its owner's groups by
// cairn://group/NAME. A name has 1 to 128 of the characters A-Z a-z 0-9 . _ - @; a node's may also be "*". Other URIs
// are ignored. Without TLS, and through a Unix socket of this user, a caller may do everything.
//
// Values and pure functions, but for AdmitCall and ObserveRefusals; any thread.
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

enum class CallerRole { kCoordinator, kPs, kWorker, kUser, kAdmin };
const char* RoleName(CallerRole role);

struct Caller {
  bool unrestricted = false;
  std::map<CallerRole, std::string> names;  // of a certificate: its roles, each with its name
  std::set<std::string> groups;
  std::string common_name;  // of the certificate's subject: for people

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

// method: as in ":path", "/cairn.v1.JobService/Submit". Errors: PERMISSION_DENIED says who may call it. A method
// without a row is nobody's.
absl::Status CheckAccess(absl::string_view method, const Caller& caller);
// All methods of the table.
std::vector<std::string> KnownMethods();

// Whether a node may have the name: its certificate's, or one that begins with that and "-". Errors: PERMISSION_DENIED.
absl::Status CheckNodeName(CallerRole role, absl::string_view node, const Caller& caller);

// What the name of a node with this certificate begins with: "", or the certificate's name and "-".
std::string NodeNamePrefix(CallerRole role, const Caller& caller);

// CheckAccess of a call that has just come, by its certificate. Every handler calls it before anything else; RpcServer
// does so for the services of gRPC. (An AuthMetadataProcessor would do it for all of them, but with one gRPC 1.51
// aborts the process at a header grpclb_client_stats.) Errors: PERMISSION_DENIED; the observer was told.
absl::Status AdmitCall(absl::string_view method, const grpc::ServerContextBase& context);
// Is told of the calls that are refused so; from any thread, must not block for long.
using AccessObserver = std::function<void(const std::string& method, const Caller& caller, const absl::Status& why)>;
// Call once, before the process listens.
void ObserveRefusals(AccessObserver observer);

}  // namespace cairn
