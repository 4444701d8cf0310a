// Reads certificates and keys in PEM, with OpenSSL.
//
// Pure functions; any thread.
#pragma once

#include <openssl/x509.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace cairn {

template <auto Free>
struct Freer {
  template <typename T>
  void operator()(T* object) const {
    Free(object);
  }
};
using Certificate = std::unique_ptr<X509, Freer<X509_free>>;
using PrivateKey = std::unique_ptr<EVP_PKEY, Freer<EVP_PKEY_free>>;

// All certificates, in order; other kinds of PEM blocks are skipped.
std::vector<Certificate> ReadCertificates(const std::string& pem);

// The URIs in the certificate's subjectAltName.
std::vector<std::string> UrisOf(X509* certificate);

// The host names in it, "*.example.org" among them.
std::vector<std::string> DnsNamesOf(X509* certificate);

// When it stops being valid. InfiniteFuture: its date cannot be read.
absl::Time ExpiryOf(X509* certificate);

// Null: there is no key, or it has a pass phrase, which a daemon cannot ask for.
PrivateKey ReadPrivateKey(const std::string& pem);

}  // namespace cairn
