#include "lanes.hpp"

#include <chrono>
#include <thread>

#include "sum.hpp"

namespace prun::copies {
namespace {

constexpr std::uint64_t most_commands = 384, mark_every = 64;

std::size_t at(std::int32_t member) { return static_cast<std::size_t>(member); }

cudaStream_t urgent_stream() {
  int least = 0, greatest = 0;
  cudaStream_t stream = nullptr;
  cuda::check(cudaDeviceGetStreamPriorityRange(&least, &greatest), "priorities of streams");
  cuda::check(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, greatest), "making a stream");
  return stream;
}

}  // namespace

Lanes::Lanes(const Driver& driver, const Layout& layout, const Reach& reach, int blocks,
             const std::atomic<bool>& aborted)
    : driver_(driver), layout_(layout), reach_(reach), blocks_(blocks), aborted_(aborted) {
  load_folds();
  pushing_.number = 1;
  pushing_.stream = urgent_stream();
}

Lanes::~Lanes() { cudaStreamDestroy(pushing_.stream); }

void Lanes::mark_end() { cuda::check(cudaEventRecord(ended_.get(), taking_.stream), "recording an event"); }

bool Lanes::is_idle() const {
  return cudaEventQuery(ended_.get()) != cudaErrorNotReady &&
         cudaStreamQuery(pushing_.stream) != cudaErrorNotReady;
}

void Lanes::make_room(Lane& lane, std::uint64_t commands) {
  if (lane.given - lane.marked >= mark_every)
    driver_.write(lane.stream, &seen(rank()).done[lane.number], lane.marked = lane.given);
  const Word& done = reach_.words->of[rank()].done[lane.number];
  while (lane.given + commands - lane.known > most_commands) {
    lane.known = done.load(std::memory_order_acquire);
    if (lane.given + commands - lane.known <= most_commands) break;
    if (aborted_.load())
      throw_error(ErrorCode::comm_failed, "comm copies: the group was aborted while starting operations");
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
  lane.given += commands;
}

void Lanes::fork() {
  make_room(taking_, 1);
  make_room(pushing_, 1);
  cuda::check(cudaEventRecord(forked_.get(), taking_.stream), "recording an event");
  cuda::check(cudaStreamWaitEvent(pushing_.stream, forked_.get(), 0), "waiting for an event");
}

void Lanes::join() {
  make_room(taking_, 1);
  make_room(pushing_, 1);
  cuda::check(cudaEventRecord(joined_.get(), pushing_.stream), "recording an event");
  cuda::check(cudaStreamWaitEvent(taking_.stream, joined_.get(), 0), "waiting for an event");
}

void Lanes::push(std::int32_t to, const std::byte* from, std::int64_t bytes) {
  make_room(pushing_, 3);
  const std::uint64_t number = ++sent_[at(to)];
  if (number > slots)
    driver_.wait(pushing_.stream, &seen(rank()).freed[to], number - static_cast<std::uint64_t>(slots));
  if (bytes > 0)
    cuda::check(cudaMemcpyAsync(reach_.buffer[at(to)] + layout_.offset(to, rank(), number), from,
                                static_cast<std::size_t>(bytes), cudaMemcpyDefault, pushing_.stream),
                "a copy to another GPU");
  driver_.write(pushing_.stream, &seen(to).arrived[rank()], number);
}

const std::byte* Lanes::await(std::int32_t from) {
  make_room(taking_, 1);
  const std::uint64_t number = ++received_[at(from)];
  driver_.wait(taking_.stream, &seen(rank()).arrived[from], number);
  return reach_.buffer[at(rank())] + layout_.offset(rank(), from, number);
}

void Lanes::release(std::int32_t from) {
  make_room(taking_, 1);
  driver_.write(taking_.stream, &seen(from).freed[rank()], received_[at(from)]);
}

void Lanes::grant(std::int32_t from) {
  make_room(taking_, 1);
  driver_.write(taking_.stream, &seen(from).granted[rank()], ++granted_[at(from)]);
}

void Lanes::place(std::int32_t to, std::byte* place, const std::byte* from, std::int64_t bytes) {
  make_room(pushing_, 3);
  const std::uint64_t number = ++placed_[at(to)];
  driver_.wait(pushing_.stream, &seen(rank()).granted[to], number);
  cuda::check(
      cudaMemcpyAsync(place, from, static_cast<std::size_t>(bytes), cudaMemcpyDefault, pushing_.stream),
      "a copy to another GPU");
  driver_.write(pushing_.stream, &seen(to).landed[rank()], number);
}

void Lanes::land(std::int32_t from) {
  make_room(taking_, 1);
  driver_.wait(taking_.stream, &seen(rank()).landed[from], granted_[at(from)]);
}

void Lanes::copy(std::byte* to, const std::byte* from, std::int64_t bytes) {
  make_room(taking_, 1);
  cuda::check(cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), cudaMemcpyDefault, taking_.stream),
              "a copy");
}

void Lanes::fold(const Summands& summands) {
  make_room(taking_, 2);
  copies::fold(summands, blocks_, taking_.stream);
}

}  // namespace prun::copies
