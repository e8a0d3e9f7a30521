#include "tiles.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "spread.hpp"

namespace prun {
namespace {

// Counts the bytes of all values that the ops touch, each value once.
double bytes_of(ProgramRef program, const Tile& ops) {
  std::map<Id, double> bytes;
  for (const Id op : ops)
    for (const Id value : operands_of(program.op(op)))
      if (value != none) bytes[value] = bytes_of(program.value(value));
  double sum = 0;
  for (const auto& [value, own] : bytes) sum += own;
  return sum;
}

// Says whether the next op reads a result of one of these.
bool hands_on(ProgramRef program, const Tile& tile, Id next) {
  std::set<Id> reads;
  for (const Id value : operands_of(program.op(next)))
    if (value != none && program.value(value).role == Role::activation) reads.insert(value);
  return std::any_of(tile.begin(), tile.end(), [&](Id op) {
    const std::vector<Id> touched = operands_of(program.op(op));
    return std::any_of(touched.begin(), touched.end(), [&](Id value) { return reads.count(value) != 0; });
  });
}

// Returns groups of ops that must stay together.
std::vector<Tile> smallest_tiles(ProgramRef program, const std::vector<Id>& ops) {
  std::vector<Tile> tiles;
  for (const Id op : ops) {
    if (tiles.empty() || !hands_on(program, tiles.back(), op)) tiles.emplace_back();
    tiles.back().push_back(op);
  }
  return tiles;
}

}  // namespace

std::vector<Tile> tiles_of(ProgramRef program, const std::vector<Id>& ops, bool tiled) {
  Tile updates = ops;
  std::erase_if(updates, [&](Id op) { return program.op(op).def->exchange != nullptr; });
  if (!tiled || updates.empty()) return {updates};
  const std::vector<Tile> smallest = smallest_tiles(program, updates);
  double most = 0;
  for (const Tile& tile : smallest) most = std::max(most, bytes_of(program, tile));
  std::vector<Tile> tiles;
  for (const Tile& next : smallest) {
    Tile both = tiles.empty() ? Tile{} : tiles.back();
    both.insert(both.end(), next.begin(), next.end());
    if (!tiles.empty() && bytes_of(program, both) <= most)
      tiles.back() = std::move(both);
    else
      tiles.push_back(next);
  }
  return tiles;
}

}  // namespace prun
