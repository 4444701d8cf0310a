// Revocations: the certificates that their authority took back before they expire, as the CRLs (RFC 5280) of a file
// list them: --tls-dir's crl.pem, next to ca.crt.
//
// A value; any thread. Invariant: it lists nothing that is not signed by an authority of ca.crt.
#pragma once

#include <openssl/x509.h>

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/base/status.h"
#include "common/rpc/pem.h"

namespace cairn {

class Revocations {
 public:
  // pem: any number of CRLs, one for each authority; text between them is ignored.
  // Errors: INVALID_ARGUMENT: there is no CRL in it, one is damaged or is not signed by one of `authorities`.
  static absl::StatusOr<Revocations> Parse(const std::string& pem, const std::vector<Certificate>& authorities);

  bool Has(X509* certificate) const;  // by issuer and serial number
  size_t size() const;
  // The first of the dates at which an authority was to issue a newer list; InfiniteFuture: they name none.
  absl::Time next_update() const { return next_update_; }

 private:
  struct List {
    std::shared_ptr<X509_NAME> issuer;
    std::set<std::string> serials;  // DER
  };

  std::vector<List> lists_;
  absl::Time next_update_ = absl::InfiniteFuture();
};

}  // namespace cairn
