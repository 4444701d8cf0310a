// Certificates and keys in PEM, read by OpenSSL.
//
// Pure functions; any thread.
#pragma once

#include <openssl/x509.h>

#include <memory>
#include <string>
#include <vector>

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

// All of them, in order; PEM of other kinds is passed over.
std::vector<Certificate> ReadCertificates(const std::string& pem);

// Null: there is none, or it has a pass phrase, which nobody is there to type.
PrivateKey ReadPrivateKey(const std::string& pem);

}  // namespace cairn
