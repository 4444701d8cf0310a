// What this process shows and asks of others when it listens and dials: nothing (plain gRPC), or mutual TLS with the
// files of one directory, named as cert-manager and Kubernetes' secrets name them:
//
//   ca.crt    PEM: the authorities whose certificates are taken
//   tls.crt   PEM: this machine's certificate, first, and those between it and ca.crt. Its names (subjectAltName) are
//             those that others dial
//   tls.key   PEM: its private key
//
// Thread rule: UseTls once, by a main, before anything listens or dials; the rest from any thread. Invariants:
//   1. With TLS a server answers nobody without a certificate of ca.crt, and a client speaks to no server without one
//      that has the dialled name.
//   2. Files that are replaced are taken up within `refresh`, for connections made from then on, all three or none: a
//      certificate always with its key, ca.crt in the same moment (gRPC, which reads them one by one, may have the one
//      without the other until it looks again). While they cannot work (a new certificate beside the old key, say)
//      those before stay in use, and that is said.
//   3. Unix sockets stay plain: only this machine's user opens them (RpcServer), and with TLS only those of this user
//      or root are dialled (channel.cc).
#pragma once

#include <memory>
#include <string>

#include "absl/time/time.h"
#include "common/base/status.h"
#include "common/rpc/tls_files.h"

namespace grpc {
class ChannelCredentials;
class ServerCredentials;
}  // namespace grpc

namespace cairn {

// How soon a renewed certificate is shown. Reading three small files costs nothing; certificates are renewed days
// ahead.
inline constexpr absl::Duration kTlsRefresh = absl::Seconds(30);

void LogTlsNotice(bool warning, const std::string& text);

// Empty: plain gRPC. `refresh`: at least 2 s. notice: from any thread.
// Errors: INVALID_ARGUMENT names the file and says what is wrong with it: missing, no PEM, expired, key of another
// certificate; a node's: not signed by ca.crt.
absl::Status UseTls(const std::string& directory, absl::Duration refresh = kTlsRefresh, TlsNotice notice = LogTlsNotice,
                    TlsOwner owner = TlsOwner::kNode);
bool UsesTls();

// To go behind gRPC's `error` of a connection that did not come about: what may be wrong with TLS on either side; empty
// where nobody listened.
std::string TlsHint(const std::string& error);

std::shared_ptr<grpc::ServerCredentials> TcpServerCredentials();
std::shared_ptr<grpc::ChannelCredentials> TcpChannelCredentials();

}  // namespace cairn
