// Cuts values into pieces of their heads, so that each piece may travel while an op runs on the one before.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "program/step_program.hpp"

namespace prun {

// Refuses a number of pieces that some value with heads cannot be cut into equally.
void check_pieces(const Program& program, std::int64_t pieces);

class HeadPieces {
 public:
  HeadPieces(Program& program, std::int64_t count) : program_(program), count_(count) {}

  std::int64_t count() const { return count_; }
  // Forgets the pieces of the function before, which are not there in this one.
  void begin_function() { taken_.clear(); }
  // Returns a piece, cut out once in a function; a value without heads is its own piece.
  Id taken(Id value, std::int64_t piece, Id before);
  // Adds a value for a piece of this future value.
  Id piece_like(Id value);
  // Puts the pieces together, as `op` computes them, before `before`.
  void join(const std::vector<Id>& pieces, Id whole, const Op& op, Id before);

 private:
  Program& program_;
  const std::int64_t count_;
  std::map<std::pair<Id, std::int64_t>, Id> taken_;
};

}  // namespace prun
