// CallerCertificate: the certificate of whoever makes a call, which may expire or be revoked while the connection, or a
// stream, is open: the handshake was before that.
//
// UseRevocations and CheckCertificate: thread-safe. A CallerCertificate: by one thread at a time.
#pragma once

#include <openssl/x509.h>

#include <cstdint>
#include <memory>
#include <string>

#include "absl/time/time.h"
#include "common/base/status.h"
#include "common/rpc/pem.h"
#include "common/rpc/revocations.h"

namespace grpc {
class AuthContext;
class ServerContextBase;
}  // namespace grpc

namespace cairn {

// From now on those of this process; null: none.
void UseRevocations(std::shared_ptr<const Revocations> revocations);

bool HasRevocations();

// Errors: UNAUTHENTICATED: it has expired, or was revoked.
absl::Status CheckCertificate(X509* certificate, absl::Time now);

class CallerCertificate {
 public:
  // Without TLS (also null), and of a client without one: there is none, and nothing to check.
  explicit CallerCertificate(const grpc::AuthContext* context);
  explicit CallerCertificate(const grpc::ServerContextBase& context);

  // As CheckCertificate. Costs little where nothing has changed since the last time.
  absl::Status Check(absl::Time now);

 private:
  Certificate certificate_;                      // null: none, or it cannot be read
  absl::Time expires_ = absl::InfiniteFuture();  // InfinitePast: it cannot be read
  uint64_t checked_ = 0;                         // which revocations it was checked against
};

}  // namespace cairn
