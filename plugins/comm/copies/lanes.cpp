#include "lanes.hpp"

#include <chrono>
#include <sstream>
#include <thread>

#include "cuda/rank_sum.hpp"
#include "prun/error.hpp"

namespace prun::copies {
namespace {

// ------------------------------------------------------------------- sum

static_assert(most_members == cuda::most_ranks_summed);

template <class T>
void fold_as(const Summands& of, int blocks, cudaStream_t stream) {
  cuda::RankParts parts{};
  parts.ranks = of.members;
  for (std::int32_t i = 0; i < of.members; ++i) parts.part[i] = of.from[static_cast<std::size_t>(i)];
  T* const to = reinterpret_cast<T*>(of.to);
  if (of.reduction == Reduction::sum)
    cuda::sum_ranks<T>(parts, to, of.count, blocks, stream);
  else
    cuda::largest_of_ranks<T>(parts, to, of.count, blocks, stream);
}

}  // namespace

void check_can_fold(const CommOp& op, const std::string& group) {
  const bool reduces = op.kind == CommKind::all_reduce || op.kind == CommKind::reduce_scatter;
  if (reduces && (op.dtype == DType::u8 || op.dtype == DType::u16))
    throw_error(ErrorCode::unsupported, "comm copies: ", group, "there is no ", name_of(op.kind), " of ",
                name_of(op.dtype));
}

void load_folds() {
  cuda::load_rank_sums<double>();
  cuda::load_rank_sums<float>();
  cuda::load_rank_sums<bf16>();
  cuda::load_rank_sums<f16>();
  cuda::load_rank_sums<std::int32_t>();
  cuda::load_rank_sums<std::int64_t>();
}

void fold(const Summands& summands, int blocks, cudaStream_t stream) {
  switch (summands.dtype) {
    case DType::f64: return fold_as<double>(summands, blocks, stream);
    case DType::f32: return fold_as<float>(summands, blocks, stream);
    case DType::bf16: return fold_as<bf16>(summands, blocks, stream);
    case DType::f16: return fold_as<f16>(summands, blocks, stream);
    case DType::i32: return fold_as<std::int32_t>(summands, blocks, stream);
    case DType::i64: return fold_as<std::int64_t>(summands, blocks, stream);
    case DType::u8:
    case DType::u16: break;
  }
  throw_error(ErrorCode::unsupported, "comm copies: no sum of ", name_of(summands.dtype));
}

namespace {

// ------------------------------------------------------------------- lanes

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

Lanes::PushingLane::PushingLane(std::size_t own_number) {
  number = own_number;
  stream = urgent_stream();
}

Lanes::PushingLane::~PushingLane() { cudaStreamDestroy(stream); }

Lanes::Lanes(const Driver& driver, const Layout& layout, const Reach& reach, int blocks,
             std::function<void()> check)
    : driver_(driver), layout_(layout), reach_(reach), blocks_(blocks), check_(std::move(check)) {
  load_folds();
  for (std::int32_t i = 0; i < layout.lanes(); ++i) pushing_.emplace_back(at(1 + i));
}

// ---------------------------------------------------------------- order of lanes

void Lanes::mark_end() { cuda::check(cudaEventRecord(ended_.get(), taking_.stream), "recording an event"); }

bool Lanes::is_idle() const {
  if (cudaEventQuery(ended_.get()) == cudaErrorNotReady) return false;
  return std::all_of(pushing_.begin(), pushing_.end(), [](const PushingLane& lane) {
    return cudaStreamQuery(lane.stream) != cudaErrorNotReady;
  });
}

void Lanes::make_room(Lane& lane, std::uint64_t commands) {
  if (lane.given - lane.marked >= mark_every)
    driver_.write(lane.stream, &seen(rank()).done[lane.number], lane.marked = lane.given);
  const Word& done = reach_.words->of[rank()].done[lane.number];
  while (lane.given + commands - lane.known > most_commands) {
    lane.known = done.load(std::memory_order_acquire);
    if (lane.given + commands - lane.known <= most_commands) break;
    check_();
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
  lane.given += commands;
}

void Lanes::fork() {
  make_room(taking_, 1);
  cuda::check(cudaEventRecord(forked_.get(), taking_.stream), "recording an event");
  for (PushingLane& lane : pushing_) lane.follows = false;
}

Lanes::PushingLane& Lanes::pushing(std::int32_t to, std::uint64_t commands) {
  PushingLane& lane = pushing_[at(layout_.lane_to(to))];
  make_room(lane, commands + 1);
  if (!lane.follows) cuda::check(cudaStreamWaitEvent(lane.stream, forked_.get(), 0), "waiting for an event");
  lane.follows = true;
  return lane;
}

void Lanes::join() {
  for (PushingLane& lane : pushing_) {
    if (!lane.reads) continue;
    make_room(taking_, 1);
    make_room(lane, 1);
    cuda::check(cudaEventRecord(lane.joined.get(), lane.stream), "recording an event");
    cuda::check(cudaStreamWaitEvent(taking_.stream, lane.joined.get(), 0), "waiting for an event");
    lane.reads = false;
  }
}

// ---------------------------------------------------------------- messages

void Lanes::push(std::int32_t to, const std::byte* from, std::int64_t bytes) {
  PushingLane& lane = pushing(to, 3);
  const std::uint64_t number = ++sent_[at(to)];
  if (number > slots)
    driver_.wait(lane.stream, &seen(rank()).freed[to], number - static_cast<std::uint64_t>(slots));
  if (bytes > 0) {
    lane.reads = true;
    cuda::check(cudaMemcpyAsync(reach_.buffer[at(to)] + layout_.offset(to, rank(), number), from,
                                static_cast<std::size_t>(bytes), cudaMemcpyDefault, lane.stream),
                "a copy to another GPU");
  }
  driver_.write(lane.stream, &seen(to).arrived[rank()], number);
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
  PushingLane& lane = pushing(to, 3);
  const std::uint64_t number = ++placed_[at(to)];
  driver_.wait(lane.stream, &seen(rank()).granted[to], number);
  lane.reads = true;
  cuda::check(cudaMemcpyAsync(place, from, static_cast<std::size_t>(bytes), cudaMemcpyDefault, lane.stream),
              "a copy to another GPU");
  driver_.write(lane.stream, &seen(to).landed[rank()], number);
}

void Lanes::land(std::int32_t from) {
  make_room(taking_, 1);
  driver_.wait(taking_.stream, &seen(rank()).landed[from], ++landed_[at(from)]);
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

// ---------------------------------------------------------------- what stands still

std::string Lanes::state() const {
  const MemberWords& own = reach_.words->of[rank()];
  std::ostringstream text;
  text << "of " << taking_.given << " commands to take at least " << own.done[0].load() << " are done";
  for (const PushingLane& lane : pushing_)
    text << ", of " << lane.given << " to push by lane " << lane.number << " " << own.done[lane.number];
  for (std::int32_t k = 1; k < layout_.size(); ++k) {
    const std::int32_t i = layout_.next(k);
    const std::size_t member = at(i);
    text << "; member " << i << " (lane " << 1 + layout_.lane_to(i) << "): pushed to it " << sent_[member]
         << ", freed by it " << own.freed[i] << ", placed there " << placed_[member] << ", granted by it "
         << own.granted[i] << "; of it awaited " << received_[member] << ", arrived " << own.arrived[i]
         << ", to land " << landed_[member] << ", landed " << own.landed[i];
    if (reach_.words->of[i].aborted.load() != 0) text << "; it has given up";
  }
  return text.str();
}

}  // namespace prun::copies
