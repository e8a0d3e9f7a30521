// Holds the plans of a communicator, each made when its kind and size are first seen, and runs of the plans
// to use again.
#pragma once

#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "algorithms.hpp"
#include "run.hpp"

namespace prun::ucx {

class Library {
 public:
  Library(std::int32_t rank, std::int32_t size, const Tuning& tuning)
      : rank_(rank), size_(size), tuning_(tuning) {}

  // Leaves a run of the operation ready to be taken, and returns its plan.
  const Plan& prepare(const CommOp& op);
  // Returns a run that is not in use. Allocates only if more operations of this kind and size are under way
  // than ever before.
  Run& take(const CommOp& op);
  void give_back(Run& run);
  // Returns what this member sends and needs for an operation.
  CommNeeds needs(const CommOp& op) const;

 private:
  struct Shelf {
    Plan plan;
    std::vector<std::unique_ptr<Run>> runs;
    std::vector<Run*> free;
  };
  using Key = std::tuple<CommKind, std::int64_t, std::int64_t, std::int32_t, bool>;

  Key key_of(const CommOp& op) const;
  bool in_place(const CommOp& op) const;
  Plan write(const CommOp& op) const;
  Shelf& shelf_of(const CommOp& op);

  std::int32_t rank_, size_;
  Tuning tuning_;
  std::map<Key, Shelf> shelves_;
};

}  // namespace prun::ucx
