// Goal: a certificate that its authority took back is refused, and no other: not by a list of another authority, not
// for a serial number that another authority gave too; a list that cannot be used is named at the start.
#include "common/rpc/revocations.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/rpc/caller_certificate.h"
#include "common/rpc/credentials.h"
#include "common/rpc/tls_files.h"
#include "tests/unit/rpc/credentials_testing.h"

namespace cairn {
namespace {

using testing::HasSubstr;

class RevocationsTest : public Credentials {
 protected:
  Certificate CertificateOf(const std::string& directory) {
    return std::move(ReadCertificates(Read(directory + "/tls.crt")).at(0));
  }
  absl::StatusOr<Revocations> Parse(const std::string& list, const std::string& authority = "one") {
    return Revocations::Parse(list, ReadCertificates(Read(dir_ + "/" + authority + "/ca.crt")));
  }
  std::string ListOf(const std::string& authority) { return Read(dir_ + "/" + authority + "/crl.pem"); }
};

TEST_F(RevocationsTest, ListsWhatWasTakenBackAndNothingElse) {
  const Certificate a = CertificateOf(Make("one", "host-a")), b = CertificateOf(Make("one", "host-b"));
  Revoke("one", "host-a");
  absl::StatusOr<Revocations> list = Parse(ListOf("one"));
  ASSERT_TRUE(list.ok()) << list.status();
  EXPECT_EQ(list->size(), 1u);
  EXPECT_TRUE(list->Has(a.get()));
  EXPECT_FALSE(list->Has(b.get()));
  EXPECT_GT(list->next_update(), absl::Now() + absl::Hours(24 * 365));
  Revoke("one", "host-b host-a");
  list = Parse(ListOf("one"));
  ASSERT_TRUE(list.ok()) << list.status();
  EXPECT_EQ(list->size(), 2u);
  EXPECT_TRUE(list->Has(a.get()) && list->Has(b.get()));
}

TEST_F(RevocationsTest, ASerialNumberIsItsIssuersAlone) {
  Make("one", "host-a");
  Make("two", "host-a");
  X509* const other = X509_dup(CertificateOf(dir_ + "/two/host-a").get());
  const Certificate same(other);
  X509_set_serialNumber(other, X509_get_serialNumber(CertificateOf(dir_ + "/one/host-a").get()));
  Revoke("one", "host-a");
  const absl::StatusOr<Revocations> list = Parse(ListOf("one"));
  ASSERT_TRUE(list.ok()) << list.status();
  EXPECT_TRUE(list->Has(CertificateOf(dir_ + "/one/host-a").get()));
  X509_set_issuer_name(other, X509_get_issuer_name(CertificateOf(dir_ + "/one/host-a").get()));
  EXPECT_TRUE(list->Has(other)) << "the issuer's name and the number are what a list names";
  X509_NAME* const renamed = X509_NAME_new();
  X509_NAME_add_entry_by_txt(renamed, "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char*>("else"), -1, -1, 0);
  X509_set_issuer_name(other, renamed);
  X509_NAME_free(renamed);
  EXPECT_FALSE(list->Has(other));
}

TEST_F(RevocationsTest, AListThatCannotBeUsedIsNamed) {
  const std::string good = Make("one", "host-a");
  Make("two", "host-b");
  Revoke("one", "host-a");
  Revoke("two", "host-b");
  const std::string list = ListOf("one"), of_another = ListOf("two");
  EXPECT_TRUE(Parse(absl::StrCat("text\n", list, "more text\n", list)).ok());
  for (const auto& [text, says] : {std::pair<std::string, const char*>{"", "holds no list in PEM"},
                                   {"nonsense", "holds no list in PEM"},
                                   {of_another, "list 1 is not signed by an authority of ca.crt"},
                                   {list + of_another, "list 2 is not signed"},
                                   {list.substr(0, list.size() / 2), "list 1 is damaged"},
                                   {list + list.substr(0, 60), "list 2 is damaged"}}) {
    const absl::StatusOr<Revocations> parsed = Parse(text);
    ASSERT_FALSE(parsed.ok()) << text;
    EXPECT_THAT(std::string(parsed.status().message()), HasSubstr(says)) << text;
  }
  const absl::StatusOr<TlsFiles> files = ReadTlsFiles(Copy(good, "crl.pem", of_another), TlsOwner::kNode);
  ASSERT_FALSE(files.ok());
  EXPECT_THAT(std::string(files.status().message()), HasSubstr("crl.pem: list 1 is not signed by an authority"));
}

TEST_F(RevocationsTest, ACertificateIsCheckedByItsDateAndTheList) {
  const std::string alice = Make("one", "host-a"), late = Make("one", "late", "-1");
  Revoke("one", "host-a");
  const Certificate good = CertificateOf(alice), expired = CertificateOf(late);
  EXPECT_TRUE(CheckCertificate(good.get(), absl::Now()).ok());
  absl::Status refused = CheckCertificate(expired.get(), absl::Now());
  EXPECT_TRUE(absl::IsUnauthenticated(refused));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("your certificate expired on"));
  EXPECT_FALSE(CheckCertificate(good.get(), absl::Now() + absl::Hours(48)).ok()) << "it was good when it was shown";
  UseRevocations(std::make_shared<const Revocations>(*Parse(ListOf("one"))));
  refused = CheckCertificate(good.get(), absl::Now());
  EXPECT_TRUE(absl::IsUnauthenticated(refused));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("was revoked"));
  UseRevocations(nullptr);
  EXPECT_TRUE(CheckCertificate(good.get(), absl::Now()).ok());
}

}  // namespace
}  // namespace cairn
