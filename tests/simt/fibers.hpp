// Stacks that work goes on on, one at a time: what runs on a fiber can stop in the middle and go on later.
#pragma once

#include <cstddef>
#include <vector>

namespace prun::simt {

class Fibers {
 public:
  struct Fiber {
    void* at = nullptr;  // where its stack ends while it does not run
  };

  // So many at most. Each begins with `entry`, which never returns.
  Fibers(std::size_t most, void (*entry)());
  ~Fibers();
  Fibers(const Fibers&) = delete;
  Fibers& operator=(const Fibers&) = delete;

  Fiber* current() const { return current_; }
  // This one stops and that one goes on; it returns when somebody goes on with this one.
  void go_on_with(Fiber* fiber);
  // The program's own stack.
  Fiber* outside() { return &outside_; }

  // One with nothing to do: one that was put back goes on where it was, a new one begins.
  Fiber* take();
  void put_back(Fiber* fiber) { idle_.push_back(fiber); }
  // From outside: whatever stopped on one is forgotten.
  void forget_all();

 private:
  void (*entry_)();
  char* stacks_;
  std::size_t used_ = 0;
  std::vector<Fiber> all_;
  std::vector<Fiber*> idle_;
  Fiber outside_;
  Fiber* current_ = &outside_;
};

}  // namespace prun::simt
