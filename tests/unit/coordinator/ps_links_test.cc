// Goal: two ps that cannot reach each other are kept apart for a time that doubles, up to a bound; if one is only busy,
// for the shortest time. What is known of a pair counts both ways, is forgotten in time, and is told while it matters.
#include "coordinator/core/ps_links.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cairn {
namespace {

using ::testing::HasSubstr;

const absl::Time kStart = absl::FromUnixSeconds(1'000'000);
const auto kEverybody = [](const NodeName&) { return true; };

v1::JobStatus JobOn(const std::string& primary) {
  v1::JobStatus job;
  job.mutable_spec()->set_backups(1);
  job.add_partitions()->set_primary(primary);
  return job;
}

TEST(PsLinks, TheTimeDoublesUpToABound) {
  PsLinks links;
  absl::Time now = kStart;
  for (const int seconds : {10, 20, 40, 80, 160, 300, 300, 300, 300, 300, 300, 300}) {
    const auto news = links.NoteLoss("ps-0", "ps-1", {"no answer for 3 s"}, now);
    ASSERT_TRUE(news.has_value());
    EXPECT_THAT(*news, HasSubstr("cannot reach ps \"ps-1\" (no answer for 3 s)"));
    const absl::Duration apart = absl::Seconds(seconds);
    EXPECT_TRUE(links.Cut("ps-0", "ps-1", now + apart - absl::Milliseconds(1)));
    EXPECT_FALSE(links.Cut("ps-0", "ps-1", now + apart));
    now += apart;
  }
}

TEST(PsLinks, ABusyPsIsTriedAgainSoon) {
  PsLinks links;
  absl::Time now = kStart;
  for (int i = 0; i < 5; ++i) {
    const auto news = links.NoteLoss("ps-0", "ps-1", {"no answer for 3 s", /*busy=*/true}, now);
    EXPECT_THAT(news.value_or(""), HasSubstr("which is busy"));
    now += absl::Seconds(10);
    EXPECT_FALSE(links.Cut("ps-0", "ps-1", now));
  }
}

TEST(PsLinks, BothWaysAndOnceForAllJobs) {
  PsLinks links;
  EXPECT_TRUE(links.NoteLoss("ps-1", "ps-0", {"cut"}, kStart).has_value());
  EXPECT_FALSE(links.NoteLoss("ps-0", "ps-1", {"cut"}, kStart + absl::Seconds(1)).has_value());
  EXPECT_TRUE(links.Cut("ps-0", "ps-1", kStart));
  EXPECT_TRUE(links.Cut("ps-1", "ps-0", kStart));
  EXPECT_FALSE(links.Cut("ps-0", "ps-2", kStart));
}

TEST(PsLinks, WhatIsForgotten) {
  PsLinks links;
  links.NoteLoss("ps-0", "ps-1", {"cut"}, kStart);
  links.NoteLoss("ps-2", "ps-1", {"cut"}, kStart);
  links.ForgetPs("ps-0");
  EXPECT_FALSE(links.Cut("ps-0", "ps-1", kStart));
  EXPECT_TRUE(links.Cut("ps-2", "ps-1", kStart));
  links.ForgetOld(kStart + absl::Minutes(30));
  EXPECT_NE(links.Text(JobOn("ps-2"), kEverybody), "");
  links.ForgetOld(kStart + absl::Minutes(31));
  EXPECT_EQ(links.Text(JobOn("ps-2"), kEverybody), "");
}

TEST(PsLinks, TheTextIsThereWhileACopyLacksForIt) {
  PsLinks links;
  links.NoteLoss("ps-0", "ps-1", {"cut"}, kStart);
  v1::JobStatus job = JobOn("ps-0");
  EXPECT_THAT(links.Text(job, kEverybody), HasSubstr("1 partition lacks a backup; check the network between them"));
  EXPECT_EQ(links.Text(job, [](const NodeName& name) { return name != "ps-1"; }), "") << "it is gone";
  EXPECT_EQ(links.Text(JobOn("ps-2"), kEverybody), "") << "nothing of it is there";
  v1::BackupPlacement& backup = *job.mutable_partitions(0)->add_backups();
  backup.set_in_sync(true);
  EXPECT_EQ(links.Text(job, kEverybody), "") << "another copy took the place";
  backup.set_in_sync(false);
  links.NoteReached("ps-0", "ps-1");
  EXPECT_EQ(links.Text(job, kEverybody), "") << "it is over";
  EXPECT_TRUE(links.Cut("ps-0", "ps-1", kStart)) << "the time stays";
}

}  // namespace
}  // namespace cairn
