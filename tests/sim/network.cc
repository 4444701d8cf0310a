#include "tests/sim/network.h"

namespace cairn::sim {
namespace {

// As common/rpc's channels and servers: a ping every second (two), two seconds (four) to wait for its answer.
constexpr absl::Duration kKeepaliveMin = absl::Seconds(2), kKeepaliveMax = absl::Seconds(6);

Stream::End Other(Stream::End end) { return end == Stream::kDialer ? Stream::kListener : Stream::kDialer; }

}  // namespace

// ---- stream ----

void Stream::Send(End from, std::function<void()> deliver) {
  if (!ends_[from].open || dead_) return;
  World& world = network_->world();
  if (world.rng.Chance(network_->faults.broken)) {
    world.Trace("the stream %d between %s and %s breaks", id_, ends_[0].host->name, ends_[1].host->name);
    return network_->BreakStream(shared_from_this());
  }
  const End to = Other(from);
  ends_[to].incoming.push_back({std::move(deliver)});
  Schedule(to);
}

// Schedules arrivals that are not scheduled yet; none while the link is cut.
void Stream::Schedule(End to) {
  Endpoint& end = ends_[to];
  const Host& from = *ends_[Other(to)].host;
  World& world = network_->world();
  if (network_->Cuts(from, *end.host)) return;
  while (end.scheduled < end.incoming.size()) {
    ++end.scheduled;
    end.last_arrival = std::max(end.last_arrival, world.now() + network_->Delay(from, *end.host));
    world.At(end.last_arrival, [self = shared_from_this(), to] { self->Arrive(to); });
  }
}

void Stream::Arrive(End to) {
  Endpoint& end = ends_[to];
  if (end.scheduled == 0 || end.incoming.empty()) return;  // cut or broken meanwhile
  if (!end.open || !InProcess(to)) return end.incoming.clear(), void(end.scheduled = 0);
  World& world = network_->world();
  if (end.host->still_until > world.now()) {
    end.last_arrival = std::max(end.last_arrival, end.host->still_until);
    world.At(end.host->still_until, [self = shared_from_this(), to] { self->Arrive(to); });
    return;
  }
  Message message = std::move(end.incoming.front());
  end.incoming.pop_front();
  --end.scheduled;
  if (message.deliver) return message.deliver();
  Break(to);
}

void Stream::Close(End end) {
  if (!ends_[end].open) return;
  const auto self = shared_from_this();  // what is forgotten below may hold the last references
  const auto unused = std::exchange(ends_[end].on_broken, nullptr);
  const auto dropped = std::exchange(ends_[end].incoming, {});
  ends_[end].open = false;
  ends_[end].scheduled = 0;
  const End other = Other(end);
  Endpoint& to = ends_[other];
  if (!to.open) return network_->Forget(id_);
  if (network_->world().rng.Chance(0.5)) {  // a reset overtakes what was sent
    to.incoming.clear();
    to.scheduled = 0;
  }
  to.incoming.push_back({});
  Schedule(other);
}

void Stream::Break(End end) {
  if (!ends_[end].open) return;
  auto self = shared_from_this();
  const auto fn = std::exchange(ends_[end].on_broken, nullptr);
  ends_[end].open = false;
  ends_[end].incoming.clear();
  ends_[end].scheduled = 0;
  const End other = Other(end);
  if (ends_[other].open) {
    ends_[other].incoming.push_back({});
    Schedule(other);
  } else {
    network_->Forget(id_);
  }
  if (InProcess(end) && fn) fn();
}

// ---- network ----

Network::~Network() {
  while (!streams_.empty()) Forget(streams_.begin()->first);
}

// Messages that wait on a stream, or never arrived, keep it alive.
void Network::Forget(uint64_t id) {
  const auto gone = streams_.extract(id);
  if (gone.empty()) return;
  for (Stream::Endpoint& end : gone.mapped()->ends_) {
    const auto on_broken = std::exchange(end.on_broken, nullptr);
    const auto incoming = std::exchange(end.incoming, {});
    end.scheduled = 0;
  }
}

std::shared_ptr<Stream> Network::Dial(Host& dialer, Host& listener) {
  auto stream = std::make_shared<Stream>();
  stream->network_ = this;
  stream->id_ = ++next_id_;
  stream->ends_[Stream::kDialer].host = &dialer;
  stream->ends_[Stream::kDialer].process = dialer.process;
  stream->ends_[Stream::kListener].host = &listener;
  stream->ends_[Stream::kListener].process = listener.process;
  streams_[stream->id_] = stream;
  const bool reaches = Reaches(dialer, listener);
  if (!reaches || !listener.up) {
    stream->ends_[Stream::kListener].open = false;
    const absl::Duration wait =
        reaches ? Delay(dialer, listener) : world_.rng.Between(absl::Seconds(1), absl::Seconds(3));
    world_.RunOn(dialer, dialer.process, world_.now() + wait, [stream] { stream->Break(Stream::kDialer); });
  }
  return stream;
}

void Network::Cut(const Host& from, const Host& to) {
  if (!cuts_.insert({&from, &to}).second) return;
  world_.Trace("the link %s -> %s is cut", from.name, to.name);
  for (const auto& stream : Between(from, to)) {
    for (Stream::End end : {Stream::kDialer, Stream::kListener}) {
      // What was on its way when the link broke is lost and sent again later.
      if (stream->ends_[end].host == &to) stream->ends_[end].scheduled = 0;
      Keepalive(stream, end);
    }
  }
}

void Network::Keepalive(const std::shared_ptr<Stream>& stream, Stream::End end) {
  Stream::Endpoint& at = stream->ends_[end];
  world_.RunOn(*at.host, at.process, world_.now() + world_.rng.Between(kKeepaliveMin, kKeepaliveMax),
               [this, stream, end] {
                 const Host& other = *stream->ends_[Other(end)].host;
                 if (!Reaches(other, *stream->ends_[end].host) || other.still_until > world_.now()) stream->Break(end);
               });
}

void Network::Heal(const Host& from, const Host& to) {
  if (cuts_.erase({&from, &to}) == 0) return;
  world_.Trace("the link %s -> %s is whole again", from.name, to.name);
  for (auto& [id, stream] : std::map(streams_)) {
    for (Stream::End end : {Stream::kDialer, Stream::kListener}) {
      if (stream->ends_[end].host == &to && stream->ends_[Other(end)].host == &from) stream->Schedule(end);
    }
  }
}

void Network::HealAll() {
  for (const Link& link : std::set(cuts_)) Heal(*link.first, *link.second);
}

void Network::ProcessEnded(Host& host) {
  for (auto& [id, stream] : std::map(streams_)) {
    for (Stream::End end : {Stream::kDialer, Stream::kListener}) {
      if (stream->ends_[end].host == &host && stream->ends_[end].open) {
        stream->Close(end);
        Keepalive(stream, Other(end));
      }
    }
  }
}

void Network::StandStill(Host& host, absl::Time until) {
  host.still_until = std::max(host.still_until, until);
  world_.Trace("%s stands still for %.3f s", host.name, absl::ToDoubleSeconds(until - world_.now()));
  for (const auto& [id, stream] : streams_) {
    for (Stream::End end : {Stream::kDialer, Stream::kListener}) {
      if (stream->ends_[Other(end)].host == &host) Keepalive(stream, end);
    }
  }
}

void Network::BreakStream(const std::shared_ptr<Stream>& stream) {
  if (std::exchange(stream->dead_, true)) return;
  for (Stream::End end : {Stream::kDialer, Stream::kListener}) {
    Stream::Endpoint& at = stream->ends_[end];
    const Host& other = *stream->ends_[Other(end)].host;
    world_.RunOn(*at.host, at.process, world_.now() + Delay(other, *at.host) * world_.rng.Between(1, 4),
                 [stream, end] { stream->Break(end); });
    // Later messages are dropped.
    if (at.incoming.size() > at.scheduled) at.incoming.resize(at.scheduled);
  }
}

std::vector<std::shared_ptr<Stream>> Network::Between(const Host& a, const Host& b) const {
  std::vector<std::shared_ptr<Stream>> found;
  for (const auto& [id, stream] : streams_) {
    const Host *x = stream->ends_[0].host, *y = stream->ends_[1].host;
    if ((x == &a && y == &b) || (x == &b && y == &a)) found.push_back(stream);
  }
  return found;
}

}  // namespace cairn::sim
