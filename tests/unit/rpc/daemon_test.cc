// Goal: a daemon that is started with few descriptors takes as many as it may: at the limit a store cannot begin its next file.
#include "common/rpc/daemon.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

namespace cairn {
namespace {

TEST(Daemon, TakesAsManyOpenFilesAsItMay) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit few{64, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  EXPECT_EQ(RaiseOpenFilesLimit(), before.rlim_max);
  rlimit after{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &after), 0);
  EXPECT_EQ(after.rlim_cur, before.rlim_max);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
}

}  // namespace
}  // namespace cairn
