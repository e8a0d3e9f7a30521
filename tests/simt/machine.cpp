#include "tests/simt/machine.hpp"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "tests/simt/fibers.hpp"
#include "tests/simt/watch.hpp"

namespace prun::simt {

alignas(16) unsigned char dynamic_shared[most_shared];

namespace {

constexpr unsigned most_threads = 1024;

std::string text_of(Place where) {
  const std::string file = where.file_name();
  return file.substr(file.rfind('/') + 1) + ":" + std::to_string(where.line());
}

std::string text_of(uint3 n) {
  return std::to_string(n.x) + " x " + std::to_string(n.y) + " x " + std::to_string(n.z);
}

struct Thread {
  enum class State { ready, at_barrier, at_exchange, ended };
  struct Copy {
    void* to;
    const void* from;
    std::size_t bytes;
    int group;
  };

  int number = 0;
  uint3 index = {};
  Fibers::Fiber* fiber = nullptr;
  State state = State::ready;
  Place where;  // it waits
  std::vector<Copy> copies;
  int groups = 0;  // of copies
};

std::string name_of(const Thread& thread) { return "thread " + std::to_string(thread.number); }

// Lanes of a warp that have come to an exchange, and what they brought: of this one and of the one before,
// which some may not have read yet.
struct Warp {
  std::uint64_t brought[2][warp];
  unsigned turn = 0;
  int arrived = 0;
  Place where;
};

// The one device, which has one launch at a time.
class Machine {
 public:
  static Machine& the() {
    static Machine machine;
    return machine;
  }

  void run(dim3 grid, dim3 block, std::size_t shared, Body body, Place where);
  void wait_at_barrier(Place where);
  Lanes bring(std::uint64_t mine, Place where);

  Thread& thread() { return *thread_; }
  uint3 block_number() const { return block_number_; }
  uint3 block() const { return block_; }
  uint3 grid() const { return grid_; }
  // The first failure of the launches since it was taken.
  std::string take_failure() { return std::exchange(failure_, ""); }

 private:
  Machine() : fibers_(most_threads, [] { the().run_threads(); }) {}

  void make_threads();
  void run_block();
  [[noreturn]] void run_threads();
  void stop(Thread::State state, Place where);
  void go_on();
  void wake(Thread* first, std::size_t count, Thread::State waiting);
  void check_same(Place first, Place where);
  void fail(const std::string& why);
  std::string who_waits() const;

  Fibers fibers_;
  std::vector<Thread> threads_;
  std::vector<Warp> warps_;
  std::vector<Thread*> ready_;  // from first_ready_ on, in the order in which they go on
  std::size_t first_ready_ = 0, started_ = 0, arrived_ = 0;
  Place barrier_;  // where the first has arrived
  Thread* thread_ = nullptr;
  uint3 block_number_ = {}, block_ = {}, grid_ = {};
  Body body_ = {};
  std::string failure_;
};

void Machine::run(dim3 grid, dim3 block, std::size_t shared, Body body, Place where) {
  const unsigned threads = block.x * block.y * block.z;
  if (threads == 0 || threads > most_threads || grid.x * grid.y * grid.z == 0 || shared > most_shared)
    return fail(text_of(where) + ": a grid of " + text_of(grid) + " blocks of " + text_of(block) +
                " threads with " + std::to_string(shared) + " bytes of shared memory cannot be launched");
  grid_ = grid, block_ = block, body_ = body;
  make_threads();
  watch().begin_launch();
  uint3& b = block_number_;
  for (b.z = 0; b.z < grid.z; ++b.z)
    for (b.y = 0; b.y < grid.y; ++b.y)
      for (b.x = 0; b.x < grid.x && failure_.empty(); ++b.x) {
        watch().begin_block(shared);
        run_block();
        if (!watch().found().empty()) fail(watch().found() + ", in block " + text_of(b));
      }
  watch().end_launch();
}

void Machine::make_threads() {
  threads_.resize(std::size_t{block_.x} * block_.y * block_.z);
  warps_.resize((threads_.size() + warp - 1) / warp);
  for (unsigned i = 0; i < threads_.size(); ++i) {
    threads_[i].number = static_cast<int>(i);
    threads_[i].index = {i % block_.x, i / block_.x % block_.y, i / block_.x / block_.y};
  }
}

void Machine::run_block() {
  for (Thread& thread : threads_) {
    thread.state = Thread::State::ready;
    thread.copies.clear();
    thread.groups = 0;
  }
  for (Warp& w : warps_) w.arrived = 0;
  ready_.clear();
  first_ready_ = started_ = arrived_ = 0;
  go_on();
  const auto ended = [](const Thread& thread) { return thread.state == Thread::State::ended; };
  if (failure_.empty() && !std::all_of(threads_.begin(), threads_.end(), ended)) fail(who_waits());
  if (!failure_.empty()) fibers_.forget_all();
}

// What every fiber does: it begins threads as long as there are some, and then whatever can go on does.
void Machine::run_threads() {
  for (;;) {
    while (started_ < threads_.size()) {
      thread_ = &threads_[started_++];
      thread_->fiber = fibers_.current();
      watch().set_thread(thread_->number);
      body_.call(body_.kernel);
      thread_->state = Thread::State::ended;
    }
    fibers_.put_back(fibers_.current());
    go_on();
  }
}

void Machine::go_on() {
  if (started_ < threads_.size()) return fibers_.go_on_with(fibers_.take());
  if (first_ready_ == ready_.size()) return fibers_.go_on_with(fibers_.outside());
  thread_ = ready_[first_ready_++];
  watch().set_thread(thread_->number);
  fibers_.go_on_with(thread_->fiber);
}

void Machine::stop(Thread::State state, Place where) {
  thread_->state = state;
  thread_->where = where;
  go_on();
}

void Machine::wake(Thread* first, std::size_t count, Thread::State waiting) {
  for (Thread* thread = first; thread < first + count; ++thread)
    if (thread->state == waiting) {
      thread->state = Thread::State::ready;
      ready_.push_back(thread);
    }
}

void Machine::wait_at_barrier(Place where) {
  if (arrived_ == 0) barrier_ = where;
  check_same(barrier_, where);
  if (++arrived_ < threads_.size()) return stop(Thread::State::at_barrier, where);
  arrived_ = 0;
  watch().pass_barrier();
  wake(threads_.data(), threads_.size(), Thread::State::at_barrier);
}

Lanes Machine::bring(std::uint64_t mine, Place where) {
  const int first = thread_->number - lane();
  Warp& w = warps_[static_cast<std::size_t>(first / warp)];
  auto& brought = w.brought[w.turn % 2];
  brought[lane()] = mine;
  if (w.arrived == 0) w.where = where;
  check_same(w.where, where);
  if (++w.arrived < warp) {
    stop(Thread::State::at_exchange, where);
  } else {
    w.arrived = 0, ++w.turn;
    wake(&threads_[static_cast<std::size_t>(first)], warp, Thread::State::at_exchange);
  }
  return brought;
}

void Machine::check_same(Place first, Place where) {
  const bool one_file =
      first.file_name() == where.file_name() || std::strcmp(first.file_name(), where.file_name()) == 0;
  if (one_file && first.line() == where.line()) return;
  fail(text_of(where) + ": " + name_of(*thread_) + " waits here, and others at " + text_of(first));
  fibers_.go_on_with(fibers_.outside());
}

std::string Machine::who_waits() const {
  const auto waits = [](const Thread& thread) { return thread.state != Thread::State::ended; };
  const auto waiting = std::find_if(threads_.begin(), threads_.end(), waits);
  const auto ended = std::find_if_not(threads_.begin(), threads_.end(), waits);
  return text_of(waiting->where) + ": " + name_of(*waiting) +
         " waits for others that do not come, in block " + text_of(block_number_) +
         (ended == threads_.end() ? "" : "; " + name_of(*ended) + " has ended");
}

void Machine::fail(const std::string& why) {
  if (failure_.empty()) failure_ = why;
}

}  // namespace

uint3 thread_index() { return Machine::the().thread().index; }
uint3 block_index() { return Machine::the().block_number(); }
uint3 block_dim() { return Machine::the().block(); }
uint3 grid_dim() { return Machine::the().grid(); }

void run(dim3 grid, dim3 block, std::size_t shared, Body body, Place where) {
  Machine::the().run(grid, block, shared, body, where);
}

std::string take_failure() { return Machine::the().take_failure(); }

void barrier(Place where) { Machine::the().wait_at_barrier(where); }

Lanes bring(std::uint64_t mine, Place where) { return Machine::the().bring(mine, where); }

int lane() { return Machine::the().thread().number % warp; }

double add_atomically(double* to, double value) {
  watch().use<Watch::Use::add>(to, sizeof *to, __builtin_return_address(0));
  return std::exchange(*to, *to + value);
}

unsigned long long raise_atomically(unsigned long long* to, unsigned long long value) {
  watch().use<Watch::Use::add>(to, sizeof *to, __builtin_return_address(0));
  return std::exchange(*to, std::max(*to, value));
}

void start_copy(void* to, const void* from, std::size_t bytes) {
  Thread& thread = Machine::the().thread();
  thread.copies.push_back({to, from, bytes, thread.groups});
}

void end_copy_group() { ++Machine::the().thread().groups; }

void finish_copies(int groups_left) {
  Thread& thread = Machine::the().thread();
  const auto under_way = [&](const Thread::Copy& copy) { return copy.group >= thread.groups - groups_left; };
  const auto rest = std::find_if(thread.copies.begin(), thread.copies.end(), under_way);
  for (auto copy = thread.copies.begin(); copy != rest; ++copy) {
    watch().use<Watch::Use::write>(copy->to, copy->bytes, __builtin_return_address(0));
    if (!copy->from) {
      std::memset(copy->to, 0, copy->bytes);
      continue;
    }
    watch().use<Watch::Use::read>(copy->from, copy->bytes, __builtin_return_address(0));
    std::memcpy(copy->to, copy->from, copy->bytes);
  }
  thread.copies.erase(thread.copies.begin(), rest);
}

}  // namespace prun::simt
