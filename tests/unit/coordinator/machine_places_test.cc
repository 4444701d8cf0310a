// Goal: one machine that takes all the places it can get leaves some to others, and a place that is given back is free.
#include "coordinator/node/machine_places.h"

#include <gtest/gtest.h>

#include <optional>
#include <vector>

namespace cairn {
namespace {

constexpr char kGreedy[] = "ipv4:10.0.0.7";
constexpr char kOther[] = "ipv4:10.0.0.8";

TEST(MachinePlacesTest, OneMachineHasAtMostItsPart) {
  MachinePlaces places({"calls wait", 3, 2});
  std::vector<MachinePlaces::Place> held;
  for (int i = 0; i < 2; ++i) held.push_back(places.Take(kGreedy).value());
  EXPECT_EQ(places.Take(kGreedy).status(),
            absl::ResourceExhaustedError(
                "2 calls wait from your machine, the most there can be; end some, or try again later"));
  const MachinePlaces::Place other = places.Take(kOther).value();
  EXPECT_EQ(places.Take(kOther).status(), absl::ResourceExhaustedError("too many calls wait; try again later"));
  held.pop_back();
  EXPECT_TRUE(places.Take(kGreedy).ok());
}

TEST(MachinePlacesTest, APlaceIsTakenUntilItsLastCopyIsGone) {
  MachinePlaces places({"calls wait", 1, 1});
  MachinePlaces::Place first = places.Take(kOther).value();
  MachinePlaces::Place copy = first;
  first.reset();
  EXPECT_FALSE(places.Take(kOther).ok());
  copy.reset();
  EXPECT_TRUE(places.Take(kOther).ok());
}

TEST(MachinePlacesTest, APlaceMayBeGivenBackWhenAllElseIsGone) {
  std::optional<MachinePlaces> places(std::in_place, MachinePlaces::Bounds{"calls wait", 1, 1});
  MachinePlaces::Place place = places->Take(kOther).value();
  places.reset();
  place.reset();
}

}  // namespace
}  // namespace cairn
