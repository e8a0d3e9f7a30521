// The passes of strategy fp8 over a placed program, and what they share: shapes of values, factors of
// products, and which products take codes (prun/fp8_blocks.hpp, prun/fp8_squares.hpp).
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "prun/fp8_squares.hpp"
#include "prun/strategy.hpp"

namespace prun::fp8 {

// These functions run for each microbatch and read parameters; the last two are those behind forward.
inline constexpr FunctionKind microbatch_functions[] = {FunctionKind::forward, FunctionKind::backward,
                                                        FunctionKind::backward_weight};
inline constexpr FunctionKind backward_functions[] = {FunctionKind::backward, FunctionKind::backward_weight};

bool has_attr(const OpInfo& op, std::string_view name);
inline Access access(const OpInfo& op, std::size_t i) { return op.def->operands[i].access; }
bool reads(const OpInfo& op, Id value);

// Says whether an op multiplies in fp8, in some layers at least.
bool multiplies(ProgramRef program, Id op);
// Says whether it does so in all layers of its segment.
bool multiplies_everywhere(ProgramRef program, Id op);

// Returns the op behind another one in its function, or none.
Id behind(const Segment& segment, FunctionKind function, Id op);

OperandShape shape_of(const ValueInfo& value);

// ------------------------------------------------------------------- products

// Counts layers at either end of the model whose products stay as they are: repetitions of segments between
// the first and the last, of those that otherwise have a product in fp8. Products before such first layers,
// or behind such last ones, stay as well.
struct LayersInCompute {
  std::int64_t first = 0, last = 0;
};

// Sets fp8 in all ops that can multiply so and whose operands come in blocks. Throws `unsupported` where
// ranks would have parts of a block or an op cannot leave layers out, `bad_input` where no op or no layer is
// left.
void multiply_in_fp8(ProgramRef program, LayersInCompute layers);

// Describes a value as a matrix that is multiplied.
struct Factor {
  Id value = none;
  Fp8Blocks blocks = Fp8Blocks::rows;
  std::int64_t in_dims = 1;  // number of its last dimensions that are a row
  Id weight = none;          // parameter of the product
};

// Returns the factors of an op that multiplies in fp8. Codes of a factor count as the one in squares.
std::vector<Factor> factors_of(ProgramRef program, Id op);

// Counts what becomes of the factors of products in fp8 in one step of `every`, over all ranks and
// microbatches. A factor that several products read is counted once, and where forward has it, there.
void count_in_fp8(ProgramRef program, std::int64_t every, double bound);

// ------------------------------------------------------------------- codes

// Says how ranks share out values.
class Places {
 public:
  explicit Places(ProgramRef program);

  std::vector<Lies> of(Id value) const;
  // Returns the shape of a rank's part of a value.
  OperandShape local_shape(Id value) const;
  // Says whether, on each axis, a value is complete, and whole or split along a dimension of its codes.
  bool lies_as(Id value, const OperandShape& codes) const;
  // Says whether codes of a rank's part of a factor, by columns or by rows, are that part of all its codes.
  bool are_cut_alike(Id factor, const OperandShape& codes, int in_dims, bool by_rows) const;

 private:
  std::int64_t extent(std::string_view axis) const;

  ProgramRef program_;
  std::vector<std::pair<std::string, std::int64_t>> axes_;
};

// Says whether an op takes these codes as that operand: it multiplies in fp8 in all layers, and reads what
// they are of there and nowhere else; its rule has the last word.
bool takes_codes(ProgramRef program, Id op, std::size_t operand, const OperandShape& codes);

// Adds a value for codes of another, which lies as that one does.
Id add_codes(ProgramRef program, Id of, const OperandShape& codes, const char* suffix, bool fetched = false);

// Has what ranks gather for products in fp8 alone travel quantized. A gather stays as it is where anything
// but products in fp8 reads its result, or these in blocks of different kinds, or in squares that ranks'
// parts cut.
void gather_inputs_in_codes(ProgramRef program);

// Keeps what backward reads of forward for products in fp8 alone as the codes that it multiplies: forward
// makes them, and the value itself need not outlive it. A value stays as it is if an op of backward that does
// not take codes reads it, or if ranks share out a dimension that the codes do not have.
void save_in_codes(ProgramRef program);

// Keeps codes of the weights that products in fp8 multiply for a whole step: each layer makes them once,
// before its first use, and all microbatches multiply them. Forward takes codes of a weight by rows, the
// gradient of its input codes by columns. A product stays as it is if ranks share out a dimension that the
// codes do not have. Throws `unsupported` where ranks have a weight for each use alone.
void cache_weights(ProgramRef program);

// Declares, in phase `state`, codes of the weights that can come together as codes if ranks have shards of
// them. Returns whether there are any.
bool declare_gathered_codes(ProgramRef program);
// Writes, in phase `collectives`, the ops that make a rank's shard of these codes, and has products read
// them.
void write_gathered_codes(ProgramRef program);

}  // namespace prun::fp8
