// Maps the memory that the members' results lie in, so that messages go right there instead of into slots.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "schedule.hpp"
#include "wires.hpp"

namespace prun::copies {

class Destinations {
 public:
  // All of these must outlive it.
  Destinations(const Driver& driver, const Layout& layout, Wires& wires)
      : driver_(driver), layout_(layout), wires_(wires) {}

  // Maps all members' memory that such an address is in; this is collective. Returns why that cannot be,
  // alike on all members, or nothing.
  std::string attach(void* base);
  void detach();
  // Lets go of memory that the GPU may still use: it stays mapped.
  void abandon();
  // Has members tell each other where the results of these operations lie; this is collective.
  void prepare(std::span<const CommOp> ops);
  // Returns the places of a list that was prepared, or nothing.
  std::span<const Places> of(std::span<const CommOp> ops) const;

 private:
  // Holds the memory of one attach(), by member; there is none for this member.
  struct Memory {
    std::byte* base = nullptr;
    std::int64_t bytes = 0;
    std::vector<std::unique_ptr<SharedRange>> others;
  };
  // Says where a result lies: so many bytes behind the begin of the memory of that number, or nowhere.
  struct Place {
    std::uint64_t operation = 0;  // tells operations apart
    std::int64_t memory = -1, offset = 0;
  };
  struct Prepared {
    std::vector<CommOp> ops;
    std::vector<Places> places;
  };

  bool may_be_placed(const CommOp& op) const;
  Place place_of(const CommOp& op) const;
  Places places_of(std::size_t number, std::size_t count, const std::vector<Place>& all) const;
  std::string first_problem(const std::string& mine);
  template <class Work>
  std::string together(Work&& work);
  void keep(std::span<const CommOp> ops, std::vector<Places> places);

  const Driver& driver_;
  const Layout& layout_;
  Wires& wires_;
  std::vector<Memory> memories_;
  std::unordered_map<const CommOp*, Prepared> prepared_;  // by the address of the first operation
};

}  // namespace prun::copies
