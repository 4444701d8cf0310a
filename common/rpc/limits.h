// Limits of connections, their reasons, and how they depend on one another.
#pragma once

#include <cstddef>

#include "absl/time/time.h"
#include "common/base/limits.h"

namespace cairn {

// The memory of a request of which a part has arrived, in bytes for each of the part: a partition of the default size
// is not copied again, as its first frame is a fourth of it, and of the largest ones a third is.
inline constexpr size_t kAssemblerGrowth = 4;
static_assert(kAssemblerGrowth * kFramePayloadBytesMax >= static_cast<size_t>(kPartitionBytesDefault));
// A stream that has sent a part of a request and then nothing for this long is ended; honest ones send a request's
// frames one after another.
inline constexpr int kAssemblerStallSecondsMax = 20;

// Received requests from one machine (not through a Unix socket) are at most half of all: the others always have the
// rest.
static_assert(kReceivedBytesMax / 2 >= 2 * (kStreamHandlingBytesMax + static_cast<size_t>(kPartitionBytesMax)));
// Exchange streams from one machine, and from all of them. A worker has two, another ps one.
inline constexpr size_t kExchangeStreamsOfPeerMax = 2048;
inline constexpr size_t kExchangeStreamsMax = 16384;
static_assert(kExchangeStreamsOfPeerMax < kExchangeStreamsMax);

// Of a connection with TLS, before its client has to show its certificate again to make calls. Certificates are renewed
// days before they expire, so that who then needs a new connection has a new one.
inline constexpr absl::Duration kConnectionAge = absl::Minutes(30);

// Connections from one machine, and from all of them; fewer where a process may have few files (ConnectionLimitsOf). A
// worker has one to the coordinator and two to each ps.
inline constexpr size_t kConnectionsOfMachineMax = 2048;
inline constexpr size_t kConnectionsMax = 32768;
// What a machine may begin a second, after so many at once: each takes some 0.4 ms of the thread that accepts, while
// others wait. It may have as many nodes, which come back together (kSessionsOfMachineMax).
inline constexpr int kConnectionsPerSecondMax = 256;
inline constexpr int kConnectionsAtOnceMax = 512;
// How often a full table looks which of its connections are closed.
inline constexpr absl::Duration kConnectionSweepEvery = absl::Milliseconds(20);
static_assert(2 * kConnectionsOfMachineMax <= kConnectionsMax && kConnectionsOfMachineMax >= kExchangeStreamsOfPeerMax);
// A port of the system's choice may be free at one of a host's addresses alone: then another one is tried.
inline constexpr int kListenTimesMax = 10;
// Calls at once on one connection; a client's further ones wait. Who watches the jobs of a sweep has hundreds.
inline constexpr int kCallsOfConnectionMax = 1024;
// On all connections of one machine, which may have hundreds of nodes. Each takes some 20 KiB.
inline constexpr int kCallsOfMachineMax = 8 * kCallsOfConnectionMax;
// How often a daemon looks whether a connection has more (CallWatch), and how often while it computes, for 10,000 calls
// are opened within 50 ms; and while its memory has just grown by the last.
inline constexpr absl::Duration kCallWatchEvery = absl::Milliseconds(200);
inline constexpr absl::Duration kBusyWatchEvery = absl::Milliseconds(20);
inline constexpr absl::Duration kGrowthWatchEvery = absl::Milliseconds(5);
inline constexpr uint64_t kGrowthBytes = uint64_t{4} << 20;
inline constexpr int kGrowthLooks = 20;  // so soon, after it has grown
// What a connection may begin a second, after kCallsOfConnectionMax at once.
// Nodes have a few streams, and users some calls.
inline constexpr int kCallsPerSecondMax = 2'000;
// What the connections of a machine together may begin a second, after so many at once: two and four times what one
// may, for programs of several users, and hundreds of nodes that come back together with a few calls each.
inline constexpr int kCallsOfMachinePerSecondMax = 2 * kCallsPerSecondMax;
inline constexpr int kCallsOfMachineAtOnceMax = 4 * kCallsOfConnectionMax;
// A daemon whose memory has grown by so much looks which connections send without an end; and what may have been read
// of a connection beyond a message.
inline constexpr uint64_t kMemoryLookBytes = uint64_t{16} << 20;
inline constexpr uint64_t kReadAheadBytesMax = uint64_t{8} << 20;
// For so long no new connection of a machine is taken after one of it was closed for its calls; then twice as long each
// time, up to the second, until none was closed for the third.
inline constexpr absl::Duration kBarredAfterCalls = absl::Milliseconds(500);
inline constexpr absl::Duration kBarredAfterCallsMax = absl::Seconds(8);
inline constexpr absl::Duration kBarsForgottenAfter = absl::Minutes(1);
// From the beginning of a connection to the first frames of HTTP/2, with TLS' handshake between.
inline constexpr int kConnectionBeginMsMax = 10'000;
// A peer that does not answer a ping, or does not confirm what was sent, for this long is gone.
inline constexpr int kConnectionLostAfterMs = 4000;
// The memory of a daemon's connections and calls: requests and answers on their way. Beyond it gRPC takes in less at a
// time, then cancels calls.
inline constexpr size_t kRpcBytesMax = size_t{256} << 20;
// Of gRPC's own services that have a thread for each open call: reflection. Further calls get RESOURCE_EXHAUSTED.
inline constexpr int kRpcThreadsMax = 64;

// Of the user, node or group that a certificate names.
inline constexpr size_t kCallerNameBytesMax = 128;

// Of a token, as a file or a call's metadata have it; more is no token.
inline constexpr size_t kTokenTextBytesMax = 256;
inline constexpr size_t kTokenIdBytesMax = 32;  // of what is given as one: shorter than any secret
inline constexpr int kTokenGroupsMax = 64;

}  // namespace cairn
