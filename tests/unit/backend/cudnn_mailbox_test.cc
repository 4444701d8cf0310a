// Goal: a wait for a device ends with what arrived, whichever comes first; with the device's error if it failed; with
// an error that says so if nothing comes, or nothing more.
#include <gtest/gtest.h>

#include <thread>

#include "worker/backend/cudnn/mailbox.h"

namespace cairn::cudnn {
namespace {

constexpr absl::Duration kForever = absl::Hours(1), kLook = absl::Milliseconds(1);

std::optional<absl::Status> Busy() { return std::nullopt; }

TEST(Mailbox, WhatArrivedAndWhatArrivesLater) {
  Mailbox mailbox("gpu");
  mailbox.Reset(2);
  mailbox.Put(1);
  mailbox.Put(5);  // of a step before
  EXPECT_TRUE(mailbox.Wait(1, kForever, kForever, Busy).ok()) << "without a look";
  std::thread other([&] { mailbox.Put(0); });
  EXPECT_TRUE(mailbox.Wait(0, kForever, kForever, Busy).ok());
  other.join();
  mailbox.Reset(2);
  EXPECT_EQ(mailbox.Wait(1, absl::Milliseconds(2), kLook, Busy).message(), "gpu: a step does not end") << "forgotten";
}

TEST(Mailbox, ADeviceThatFailsOrForgets) {
  Mailbox mailbox("gpu");
  mailbox.Reset(1);
  const auto failed = [] { return std::optional<absl::Status>(absl::UnavailableError("gpu: fell off the bus")); };
  EXPECT_EQ(mailbox.Wait(0, kForever, kLook, failed).message(), "gpu: fell off the bus");
  const auto idle = [] { return std::optional<absl::Status>(absl::OkStatus()); };
  EXPECT_EQ(mailbox.Wait(0, kForever, kLook, idle).message(), "gpu: a step ended without its results");
  const auto late = [&] {
    mailbox.Put(0);
    return std::optional<absl::Status>(absl::OkStatus());
  };
  EXPECT_TRUE(mailbox.Wait(0, kForever, kLook, late).ok()) << "it arrived while the device was looked at";
}

TEST(Mailbox, DrainsAreNumbered) {
  Mailbox mailbox("gpu");
  const uint64_t first = mailbox.AskDrain(), second = mailbox.AskDrain();
  EXPECT_EQ(mailbox.WaitForDrain(first, absl::Milliseconds(2), kLook, Busy).code(),
            absl::StatusCode::kDeadlineExceeded);
  mailbox.PutDrain(first);  // late
  EXPECT_TRUE(mailbox.WaitForDrain(first, kForever, kForever, Busy).ok());
  EXPECT_EQ(mailbox.WaitForDrain(second, absl::Milliseconds(2), kLook, Busy).code(),
            absl::StatusCode::kDeadlineExceeded)
      << "not ended by the one before";
  int looks = 0;
  const auto looked = [&]() -> std::optional<absl::Status> {
    if (++looks == 3) mailbox.PutDrain(second);
    return std::nullopt;
  };
  EXPECT_TRUE(mailbox.WaitForDrain(second, kForever, kLook, looked).ok());
  EXPECT_GE(looks, 3);
  EXPECT_TRUE(mailbox.WaitForDrain(first, kForever, kForever, Busy).ok());
}

}  // namespace
}  // namespace cairn::cudnn
