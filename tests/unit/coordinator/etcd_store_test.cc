// Goal: the coordinator's store in etcd, compared with a map: what is written is there for the next leader, whole; a
// former leader, a late copy and a lost answer change nothing that they should not; a corrupt value in etcd is an error
// that names the key.
#include "coordinator/store/etcd_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "coordinator/core/limits.h"
#include "coordinator/store/state_store.h"
#include "tests/unit/coordinator/fake_etcd.h"
#include "tests/unit/test_seed.h"

namespace cairn {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class EtcdStoreTest : public testing::Test {
 protected:
  // A store as that of a coordinator that has just been elected.
  std::unique_ptr<EtcdStore> Elected() {
    etcd_.Delete("p/leader");
    etcd_.Put("p/leader", "me");
    term_ = std::make_shared<LeaderTerm>("p/leader", etcd_.CreateRevision("p/leader"), 1, &clock_);
    term_->RenewUntil(clock_.Now() + absl::Minutes(5));
    return std::make_unique<EtcdStore>(&client_, "p", term_);
  }
  static absl::Status Put(EtcdStore& store, const std::string& key, const std::string& value) {
    KvBatch batch;
    batch.Put(key, value);
    return store.Write(batch, true);
  }
  static std::map<std::string, std::string> ReadAll(EtcdStore& store) {
    std::map<std::string, std::string> all;
    const absl::Status status = store.Scan("", [&](std::string_view key, std::string_view value) {
      all[std::string(key)] = std::string(value);
      return true;
    });
    EXPECT_TRUE(status.ok()) << status;
    return all;
  }

  FakeEtcd etcd_;
  RealClock clock_;
  EtcdClient client_{{etcd_.Endpoint(0)}};
  std::shared_ptr<LeaderTerm> term_;
};

TEST_F(EtcdStoreTest, BesideAMapThroughManyTerms) {
  const uint32_t seed = TestSeed();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  const auto below = [&](uint32_t n) { return static_cast<uint32_t>(random() % n); };
  std::map<std::string, std::string> model;
  for (int term = 0; term < 4; ++term) {
    auto store = Elected();
    EXPECT_EQ(ReadAll(*store), model);
    EXPECT_TRUE(store->DropOrphans().ok());
    for (int write = 0; write < 12; ++write) {
      KvBatch batch;
      for (uint32_t change = below(6) + 1; change > 0; --change) {
        const std::string key = absl::StrCat("job/", below(8));
        if (below(4) == 0) {
          batch.Delete(key);
          model.erase(key);
          continue;
        }
        // Empty, exactly one chunk, and several chunks too.
        const size_t sizes[] = {0, 100, 1000, 400'000, EtcdStore::kChunkBytes, EtcdStore::kChunkBytes + 1, 3'300'000};
        std::string value(sizes[below(7)], static_cast<char>('a' + below(26)));
        batch.Put(key, value);
        model[key] = std::move(value);
      }
      if (below(4) == 0) etcd_.LoseAnswers(1);
      const absl::Status status = store->Write(batch, true);
      ASSERT_TRUE(status.ok()) << status;
    }
    EXPECT_EQ(ReadAll(*store), model);
    for (const auto& [key, value] : model) {
      EXPECT_EQ(*store->Get(key), value) << key;
    }
  }
  auto store = Elected();
  for (const auto& [key, value] : ReadAll(*store)) {
    KvBatch batch;
    batch.Delete(key);
    ASSERT_TRUE(store->Write(batch, true).ok());
  }
  EXPECT_THAT(etcd_.Keys("p/state/"), IsEmpty());
  EXPECT_THAT(etcd_.Keys("p/chunk/"), IsEmpty()) << "chunks go with their values";
}

TEST_F(EtcdStoreTest, ACoordinatorThatWasDeposedWritesNothing) {
  auto old = Elected();
  ASSERT_TRUE(Put(*old, "cluster", "of the old one").ok());
  const auto old_term = term_;
  auto now = Elected();
  ASSERT_TRUE(Put(*now, "cluster", "of the new one").ok());
  ASSERT_TRUE(old_term->Valid()) << "by its clock it leads";
  EXPECT_EQ(Put(*old, "cluster", "late").code(), absl::StatusCode::kAborted);
  EXPECT_EQ(Put(*old, "job/1", std::string(5'000'000, 'x')).code(), absl::StatusCode::kAborted);
  EXPECT_THAT(ReadAll(*now), SizeIs(1));
  EXPECT_EQ(**now->Get("cluster"), "of the new one");
}

TEST_F(EtcdStoreTest, WhoseLeaseLapsedByItsOwnClockAsksNobody) {
  auto store = Elected();
  term_->End();
  EXPECT_EQ(Put(*store, "cluster", "late").code(), absl::StatusCode::kAborted);
  EXPECT_FALSE(store->Get("cluster").ok());
  EXPECT_EQ(etcd_.transactions().size(), 0u);
}

TEST_F(EtcdStoreTest, ALateCopyOfAWriteChangesNothing) {
  auto store = Elected();
  for (const char* value : {"1", "2", "3"}) ASSERT_TRUE(Put(*store, "cluster", value).ok());
  for (const auto& request : etcd_.transactions()) EXPECT_FALSE(etcd_.Replay(request));
  EXPECT_EQ(**store->Get("cluster"), "3");
}

TEST_F(EtcdStoreTest, AWriteWhoseAnswerWasLostIsDoneOnce) {
  auto store = Elected();
  etcd_.LoseAnswers(3);
  ASSERT_TRUE(Put(*store, "cluster", "1").ok());
  EXPECT_EQ(etcd_.transactions().size(), 4u);
  ASSERT_TRUE(Put(*store, "cluster", "2").ok()) << "it goes on from there";
  EXPECT_EQ(**store->Get("cluster"), "2");
}

TEST_F(EtcdStoreTest, SomebodyElseWhoWritesThereIsNoticed) {
  auto store = Elected();
  ASSERT_TRUE(Put(*store, "cluster", "1").ok());
  etcd_.Put("p/guard", "mine");
  const absl::Status status = Put(*store, "cluster", "2");
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("p/guard"));
}

TEST_F(EtcdStoreTest, ChunksOfAWriteThatDidNotEndAreDropped) {
  auto store = Elected();
  ASSERT_TRUE(Put(*store, "job/1", std::string(2'000'000, 'a')).ok());
  const size_t kept = etcd_.Keys("p/chunk/").size();
  etcd_.AcceptWrites(10);
  ASSERT_FALSE(Put(*store, "job/2", std::string(kEtcdValueBytesMax, 'b')).ok()) << "refused on the way";
  etcd_.AcceptWrites(1'000'000);
  EXPECT_GT(etcd_.Keys("p/chunk/").size(), kept);
  auto next = Elected();
  EXPECT_THAT(ReadAll(*next), SizeIs(1));
  ASSERT_TRUE(next->DropOrphans().ok());
  EXPECT_THAT(etcd_.Keys("p/chunk/"), SizeIs(kept));
  EXPECT_THAT(ReadAll(*next), SizeIs(1));
}

TEST_F(EtcdStoreTest, DamageIsNamedByItsKey) {
  auto store = Elected();
  ASSERT_TRUE(Put(*store, "job/1", std::string(3'000'000, 'a')).ok());
  etcd_.Delete(etcd_.Keys("p/chunk/").at(1));
  auto get = Elected()->Get("job/1");
  EXPECT_EQ(get.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(get.status().message()), HasSubstr("p/state/job/1"));
  etcd_.Put("p/state/cluster", "\xff\xff");
  get = Elected()->Get("cluster");
  EXPECT_EQ(get.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(get.status().message()), HasSubstr("p/state/cluster"));
  v1::EtcdValue odd;
  odd.set_chunk_id("../leader");
  odd.set_bytes(3);
  etcd_.Put("p/state/cluster", odd.SerializeAsString());
  EXPECT_EQ(Elected()->Get("cluster").status().code(), absl::StatusCode::kDataLoss);
  odd.set_chunk_id("0000-1");
  odd.set_bytes(uint64_t{1} << 50);
  etcd_.Put("p/state/cluster", odd.SerializeAsString());
  EXPECT_EQ(Elected()->Get("cluster").status().code(), absl::StatusCode::kDataLoss);
}

TEST_F(EtcdStoreTest, NonsenseInAReadIsAnError) {
  auto store = Elected();
  ASSERT_TRUE(Put(*store, "job/1", "x").ok());
  const auto scan = [&] { return store->Scan("job/", [](std::string_view, std::string_view) { return true; }); };
  etcd_.TamperWithReads([](const auto&, etcdserverpb::RangeResponse* response) {
    response->clear_kvs();
    response->set_more(true);
  });
  EXPECT_EQ(scan().code(), absl::StatusCode::kInternal) << "more, and nothing";
  etcd_.TamperWithReads([](const auto&, etcdserverpb::RangeResponse* response) {
    for (auto& kv : *response->mutable_kvs()) kv.set_key("elsewhere");
  });
  EXPECT_EQ(scan().code(), absl::StatusCode::kInternal) << "a key out of the range";
  etcd_.TamperWithReads([](const auto&, etcdserverpb::RangeResponse* response) {
    if (response->kvs_size() == 1) *response->add_kvs() = response->kvs(0);
  });
  EXPECT_EQ(scan().code(), absl::StatusCode::kInternal) << "a key twice";
}

TEST_F(EtcdStoreTest, WhatEtcdRefusesIsSaidAndNotTriedAgain) {
  auto store = Elected();
  ASSERT_TRUE(Put(*store, "cluster", "1").ok());
  etcd_.Refuse(1, grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "etcdserver: mvcc: database space exceeded"));
  const absl::Status status = Put(*store, "cluster", "2");
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("compact"));
  etcd_.Refuse(1,
               grpc::Status(grpc::StatusCode::OUT_OF_RANGE, "etcdserver: mvcc: required revision has been compacted"));
  EXPECT_EQ(store->Get("cluster").status().code(), absl::StatusCode::kOutOfRange);
}

TEST_F(EtcdStoreTest, BatchesThatAreTooLargeAreRefusedBeforeAnythingIsWritten) {
  auto store = Elected();
  KvBatch many, range;
  for (size_t i = 0; i <= kEtcdChangesMax; ++i) many.Put(absl::StrCat("job/", i), "x");
  EXPECT_EQ(store->Write(many, true).code(), absl::StatusCode::kInvalidArgument);
  range.DeleteRange("a", "b");
  EXPECT_EQ(store->Write(range, true).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Put(*store, "job/1", std::string(kEtcdValueBytesMax + 1, 'x')).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(etcd_.Keys("p/state/"), IsEmpty());
  EXPECT_THAT(etcd_.Keys("p/chunk/"), IsEmpty());
}

TEST_F(EtcdStoreTest, AStateStoreSplitsWhatDoesNotFitOneWrite) {
  StateStore store(Elected());
  std::vector<Store> changes;
  for (int i = 1; i <= 120; ++i) {
    v1::StoredJob job;
    job.mutable_status()->set_job_id(i);
    changes.push_back({absl::StrCat("job/", i), job.SerializeAsString()});
  }
  ASSERT_TRUE(store.Write(changes).ok());
  EXPECT_EQ(etcd_.Keys("p/state/job/").size(), 120u);
}

TEST(EtcdAddress, WhatIsOneAndWhatIsNot) {
  const auto one = EtcdAddress::Parse("etcd://a:2379");
  ASSERT_TRUE(one.ok()) << one.status();
  EXPECT_THAT(one->endpoints, testing::ElementsAre("a:2379"));
  EXPECT_EQ(one->prefix, "cairn");
  const auto three = EtcdAddress::Parse("etcd://a:1,b:2,10.0.0.1:3/team/cairn/");
  ASSERT_TRUE(three.ok()) << three.status();
  EXPECT_THAT(three->endpoints, SizeIs(3));
  EXPECT_EQ(three->prefix, "team/cairn");
  for (const char* wrong : {"", "etcd://", "a:1", "http://a:1", "etcd://a", "etcd://a:1,", "etcd://a:1//x"}) {
    const auto parsed = EtcdAddress::Parse(wrong);
    EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument) << wrong;
    EXPECT_THAT(std::string(parsed.status().message()), HasSubstr("etcd://HOST:PORT")) << wrong;
  }
}

TEST(EtcdClient, GoesToAnotherMember) {
  FakeEtcd etcd;
  etcd.AddMember();
  etcd.Put("the-key", "v");
  EtcdClient client({etcd.Endpoint(0), etcd.Endpoint(1)});
  etcdserverpb::RangeRequest request;
  request.set_key("the-key");
  for (const size_t stopped : {0, 1, 0}) {
    etcd.StopMember(stopped);
    const auto read = client.Range(request, absl::Seconds(30));
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->kvs_size(), 1);
    etcd.StartMember(stopped);
  }
  etcd.StopMember(0);
  etcd.StopMember(1);
  const auto none = client.Range(request, absl::Milliseconds(300));
  EXPECT_EQ(none.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(none.status().message()), HasSubstr(etcd.Endpoint(1)));
}

TEST(EtcdClient, AMemberThatHangsCostsOneAttempt) {
  FakeEtcd hanging, sound;
  hanging.Hang(true);
  EtcdClient client({hanging.Endpoint(0), sound.Endpoint(0)}, absl::Milliseconds(100));
  const auto lease = client.GrantLease(absl::Seconds(2), absl::Seconds(30));
  ASSERT_TRUE(lease.ok()) << lease.status();
  EXPECT_EQ(*client.KeepAlive(lease->id, absl::Seconds(30)), absl::Seconds(2));
  EXPECT_TRUE(client.RevokeLease(lease->id, absl::Seconds(30)).ok());
  EXPECT_EQ(client.KeepAlive(lease->id, absl::Seconds(30)).status().code(), absl::StatusCode::kNotFound);
  EtcdClient alone({hanging.Endpoint(0)}, absl::Milliseconds(100));
  EXPECT_EQ(alone.GrantLease(absl::Seconds(2), absl::Milliseconds(250)).status().code(),
            absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace cairn
