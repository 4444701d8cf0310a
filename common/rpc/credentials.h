// The process' credentials for listening and dialing: none (plain gRPC), or mutual TLS with the files of one
// directory, named as cert-manager and Kubernetes secrets name them:
//
//   ca.crt    PEM: the trusted certificate authorities
//   tls.crt   PEM: this machine's certificate first, then intermediate ones up to ca.crt. Its names (subjectAltName)
//             must be those that others dial
//   tls.key   PEM: its private key
//   crl.pem   PEM, may be left out: certificates that are refused although they have not expired (revocations.h)
//
// Thread rule: UseTls once, by a main, before anything listens or dials; the rest from any thread. Invariants:
//   1. With TLS a server refuses clients without a certificate signed by ca.crt, and a client refuses servers without
//      such a certificate for the dialed name. A server that takes tokens (AcceptTokens) also talks to clients without
//      a certificate, which may call nothing without a token.
//      A call is answered if a role of the certificate may make it (access.h).
//   2. Replaced files take effect within `refresh`, for new connections, all three or none: a certificate always with
//      its key, ca.crt at the same moment (gRPC reads the files one by one, so it may have the new ca.crt without the
//      new certificate, or the reverse, until it looks again). Unusable files (a new certificate with the old key,
//      say) leave the old ones in use, with a notice.
//   3. A certificate that expires, or is revoked, is refused by the next call also on an open connection; streams of
//      nodes end, a watch with its next message (caller_certificate.h). Only servers look at the list: a client trusts
//      ca.crt alone.
//   4. Unix sockets stay plain: only this user can open them (RpcServer), and with TLS only those of this user
//      or root are dialed (channel.cc).
#pragma once

#include <memory>
#include <string>

#include "absl/time/time.h"
#include "common/base/status.h"
#include "common/rpc/access.h"
#include "common/rpc/tls_files.h"

namespace grpc {
class ChannelCredentials;
class ServerCredentials;
}  // namespace grpc

namespace cairn {

// How soon a renewed certificate takes effect. Reading three small files is cheap; certificates are renewed days before
// they expire.
inline constexpr absl::Duration kTlsRefresh = absl::Seconds(30);

void LogTlsNotice(bool warning, const std::string& text);

// Empty: plain gRPC. `refresh`: at least 2 s. notice: from any thread.
// Errors: INVALID_ARGUMENT names the file and the problem: missing, not PEM, expired, key of another
// certificate, a cairn:// URI that names no role; for a node also: not signed by ca.crt.
absl::Status UseTls(const std::string& directory, absl::Duration refresh = kTlsRefresh, TlsNotice notice = LogTlsNotice,
                    TlsOwner owner = TlsOwner::kNode);
bool UsesTls();
// When the certificate in use or its authority's expires, also after a renewal; InfiniteFuture without TLS.
absl::Time CertificateExpiry();
// The roles of this process' certificate, as it was at UseTls; unrestricted without TLS.
const Caller& OwnCaller();
// Lets this process listen for other machines without TLS.
void AllowInsecure();
// Whether it may listen there. Errors: INVALID_ARGUMENT, with both cures: the address is not one of this machine alone
// (127.0.0.0/8, ::1, localhost), and there is neither TLS nor AllowInsecure.
absl::Status CheckListen(const std::string& address);

// A hint to put behind gRPC's `error` for a failed connection: what may be wrong with TLS on either side. Empty
// if nobody listened.
std::string TlsHint(const std::string& error);

std::shared_ptr<grpc::ServerCredentials> TcpServerCredentials();
std::shared_ptr<grpc::ChannelCredentials> TcpChannelCredentials();

}  // namespace cairn
