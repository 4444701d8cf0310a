// Goal: memory goes to who has the ticket, once, and to nobody else; the taker's arena goes to the giver; strangers at
// the socket delay nobody.
#include "common/shared_memory/handover.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "common/base/unix_socket.h"
#include "common/shared_memory/limits.h"

namespace cairn {
namespace {

constexpr size_t kBytes = 8192;
constexpr absl::Duration kLong = absl::Seconds(30);

class HandoverTest : public testing::Test {
 protected:
  HandoverTest() {
    std::string pattern = (std::filesystem::temp_directory_path() / "cairn-test-XXXXXX").string();
    dir_ = mkdtemp(pattern.data());
    path_ = dir_ + "/ps.sock.mem";
    auto listening = HandoverSocket::Listen(path_, /*own_only=*/true);
    EXPECT_TRUE(listening.ok()) << listening.status();
    socket_ = *std::move(listening);
  }
  ~HandoverTest() override {
    socket_.reset();
    EXPECT_FALSE(std::filesystem::exists(path_));
    std::filesystem::remove_all(dir_);
  }
  // Tries again while the kernel's queue of connections is full.
  FileDescriptor Connect() {
    const absl::Time until = absl::Now() + kLong;
    auto connection = ConnectUnixSocket(path_, /*own_only=*/true);
    while (!connection.ok() && absl::Now() < until) {
      std::this_thread::yield();
      connection = ConnectUnixSocket(path_, /*own_only=*/true);
    }
    EXPECT_TRUE(connection.ok()) << connection.status();
    return *std::move(connection);
  }
  // Memory that begins with this text.
  HandoverSocket::Give Giving(const std::string& text) {
    return [this, text](FileDescriptor arena) -> absl::StatusOr<HandoverSocket::Given> {
      auto region = SharedRegion::Create(kBytes);
      if (!region.ok()) return region.status();
      std::copy(text.begin(), text.end(), region->data());
      HandoverSocket::Given given{region->TakeDescriptor(), false};
      given_.push_back(*std::move(region));
      if (arena.get() >= 0) {
        auto view = ArenaView::Open(std::move(arena), kBytes);
        if (!view.ok()) return view.status();
        given.reads_arena = reads_arenas_;
        read_.push_back(*std::move(view));
      }
      return given;
    };
  }
  absl::StatusOr<TakenRegion> Take(const std::string& ticket, const SharedArena* own = nullptr, size_t bytes = kBytes) {
    return TakeRegion(Connect(), ticket, bytes, own, kLong);
  }
  std::string Taken(const std::string& ticket) {
    const auto memory = Take(ticket);
    if (!memory.ok()) return std::string(memory.status().message());
    return std::string(reinterpret_cast<const char*>(memory->region.data()));
  }

  std::string dir_, path_;
  std::vector<SharedRegion> given_;  // on the socket's thread; the tests' own after it
  std::vector<ArenaView> read_;      // the same
  bool reads_arenas_ = true;
  std::unique_ptr<HandoverSocket> socket_;
};

TEST_F(HandoverTest, ATicketIsGoodOnce) {
  const std::string one = socket_->Offer(Giving("one")), two = socket_->Offer(Giving("two"));
  ASSERT_EQ(one.size(), kTicketBytes);
  EXPECT_NE(one, two);
  EXPECT_EQ(Taken(two), "two");
  EXPECT_EQ(Taken(one), "one");
  EXPECT_THAT(Taken(one), testing::HasSubstr("gave no memory"));
  EXPECT_THAT(Taken(std::string(kTicketBytes, '0')), testing::HasSubstr("gave no memory"));
}

TEST_F(HandoverTest, BothSeeTheSameMemory) {
  const auto memory = Take(socket_->Offer(Giving("x")));
  ASSERT_TRUE(memory.ok()) << memory.status();
  memory->region.data()[100] = 42;
  EXPECT_EQ(given_.at(0).data()[100], 42);
  EXPECT_FALSE(memory->arena_is_read);
}

TEST_F(HandoverTest, TheGiverReadsTheTakersArena) {
  const std::unique_ptr<SharedArena> mine = *SharedArena::Create(kBytes);
  std::memcpy(mine->Take(100), "the taker's", 12);
  const auto memory = Take(socket_->Offer(Giving("x")), mine.get());
  ASSERT_TRUE(memory.ok()) << memory.status();
  EXPECT_TRUE(memory->arena_is_read);
  EXPECT_STREQ(reinterpret_cast<const char*>(read_.at(0).Find(0, 12)->data()), "the taker's");
  reads_arenas_ = false;
  const auto unread = Take(socket_->Offer(Giving("x")), mine.get());
  ASSERT_TRUE(unread.ok()) << unread.status();
  EXPECT_FALSE(unread->arena_is_read);
}

// What is no arena is not mapped, whoever sends it.
TEST_F(HandoverTest, AnArenaIsCheckedByTheGiver) {
  const std::unique_ptr<SharedArena> larger = *SharedArena::Create(2 * kBytes);
  EXPECT_THAT(std::string(Take(socket_->Offer(Giving("x")), larger.get()).status().message()),
              testing::HasSubstr("gave no memory"));
  EXPECT_TRUE(read_.empty());
}

TEST_F(HandoverTest, AWithdrawnTicketGetsNothing) {
  const std::string ticket = socket_->Offer(Giving("x"));
  socket_->Withdraw(ticket);
  socket_->Withdraw(ticket);
  EXPECT_THAT(Taken(ticket), testing::HasSubstr("gave no memory"));
}

TEST_F(HandoverTest, AGiverThatFailsIsSaid) {
  const std::string ticket = socket_->Offer([](FileDescriptor) -> absl::StatusOr<HandoverSocket::Given> {
    return absl::ResourceExhaustedError("none left");
  });
  EXPECT_THAT(Taken(ticket), testing::HasSubstr("gave no memory"));
  const auto other = Take(socket_->Offer(Giving("x")), nullptr, 2 * kBytes);
  EXPECT_THAT(std::string(other.status().message()), testing::HasSubstr("8192 bytes, 16384 are expected"));
}

// What comes with a ticket that nobody knows, or with a part of one, is not even received.
TEST_F(HandoverTest, AStrangersDescriptorIsNotReceived) {
  const std::unique_ptr<SharedArena> arena = *SharedArena::Create(kBytes);
  EXPECT_THAT(std::string(Take(std::string(kTicketBytes, '0'), arena.get()).status().message()),
              testing::HasSubstr("gave no memory"));
  const std::string ticket = socket_->Offer(Giving("x"));
  EXPECT_THAT(std::string(Take(ticket.substr(1), arena.get()).status().message()),
              testing::HasSubstr("gave no memory"));
  EXPECT_TRUE(read_.empty());
  EXPECT_EQ(Taken(ticket), "x");
}

TEST_F(HandoverTest, StrangersDelayNobody) {
  std::vector<FileDescriptor> strangers;
  for (size_t i = 0; i < 2 * kHandoverConnectionsMax; ++i) {
    strangers.push_back(Connect());
    if (i % 2 == 0) send(strangers.back().get(), "0123", 4, MSG_NOSIGNAL);
  }
  const std::string ticket = socket_->Offer(Giving("mine"));
  EXPECT_EQ(Taken(ticket), "mine");
  char byte;  // nobody had to be waited for: the last of them still has its time
  EXPECT_EQ(recv(strangers.back().get(), &byte, 1, MSG_DONTWAIT), -1) << "its time is over";
}

// A giver that sends descriptors that are no memory: none of them stays open here.
TEST_F(HandoverTest, DescriptorsThatAreTooManyAreClosed) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  FileDescriptor taker(ends[0]), giver(ends[1]);
  int pipes[2];
  ASSERT_EQ(pipe(pipes), 0);
  char byte = 0;
  iovec part{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(2 * sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  cmsghdr* const rights = CMSG_FIRSTHDR(&message);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(2 * sizeof(int));
  const int two[2] = {pipes[1], pipes[1]};
  std::memcpy(CMSG_DATA(rights), two, sizeof(two));
  ASSERT_EQ(sendmsg(giver.get(), &message, 0), 1);
  close(pipes[1]);
  EXPECT_FALSE(TakeRegion(std::move(taker), std::string(kTicketBytes, '0'), kBytes, nullptr, kLong).ok());
  // All writers of the pipe are gone.
  EXPECT_EQ(read(pipes[0], &byte, 1), 0);
  close(pipes[0]);
}

TEST_F(HandoverTest, TheFileIsThisUsers) {
  struct stat found {};
  ASSERT_EQ(stat(path_.c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0077, 0u);
  EXPECT_TRUE(absl::IsUnavailable(HandoverSocket::Listen(path_, true).status())) << "somebody listens there";
}

TEST(UnixSocket, ALeftOverFileIsReplacedAndALongPathRefused) {
  std::string pattern = (std::filesystem::temp_directory_path() / "cairn-test-XXXXXX").string();
  const std::string dir = mkdtemp(pattern.data()), path = dir + "/s";
  { ASSERT_TRUE(ListenOnUnixSocket(path, false).ok()); }
  EXPECT_TRUE(std::filesystem::exists(path));
  EXPECT_TRUE(absl::IsUnavailable(ConnectUnixSocket(path, false).status()));
  EXPECT_TRUE(ListenOnUnixSocket(path, false).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(ConnectUnixSocket(std::string(200, 'x'), false).status()));
  EXPECT_TRUE(absl::IsUnavailable(ListenOnUnixSocket(dir + "/none/s", false).status()));
  std::filesystem::remove_all(dir);
}

}  // namespace
}  // namespace cairn
