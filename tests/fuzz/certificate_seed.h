// A certificate that signs itself, with names as make_certs.sh writes them.
#pragma once

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <memory>
#include <string>

#include "common/base/check.h"
#include "common/rpc/pem.h"

namespace cairn {

struct CertificateSeed {
  std::string pem, key, der;
};

inline CertificateSeed MakeCertificateSeed() {
  const PrivateKey key(EVP_EC_gen("P-256"));
  const Certificate certificate(X509_new());
  CAIRN_CHECK(key != nullptr && certificate != nullptr, "OpenSSL");
  X509_set_version(certificate.get(), 2);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate.get()), 1);
  X509_gmtime_adj(X509_getm_notBefore(certificate.get()), 0);
  X509_gmtime_adj(X509_getm_notAfter(certificate.get()), 86400);
  X509_set_pubkey(certificate.get(), key.get());
  X509_EXTENSION* const names = X509V3_EXT_conf_nid(nullptr, nullptr, NID_subject_alt_name,
                                                    "DNS:host,DNS:*.example.org,URI:cairn://worker/w0,IP:10.0.0.7");
  X509_add_ext(certificate.get(), names, -1);
  X509_EXTENSION_free(names);
  CAIRN_CHECK(X509_sign(certificate.get(), key.get(), EVP_sha256()) > 0, "OpenSSL");

  const auto text_of = [](const auto& write) {
    const std::unique_ptr<BIO, Freer<BIO_free>> memory(BIO_new(BIO_s_mem()));
    CAIRN_CHECK(write(memory.get()) == 1, "OpenSSL");
    char* text = nullptr;
    const long size = BIO_get_mem_data(memory.get(), &text);
    return std::string(text, static_cast<size_t>(size));
  };
  return {text_of([&](BIO* to) { return PEM_write_bio_X509(to, certificate.get()); }), text_of([&](BIO* to) {
            return PEM_write_bio_PrivateKey(to, key.get(), nullptr, nullptr, 0, nullptr, nullptr);
          }),
          text_of([&](BIO* to) { return i2d_X509_bio(to, certificate.get()); })};
}

}  // namespace cairn
