// Makes one launch of a CPU kernel on operands of its own: each lies between fences, and so does the
// workspace. What a kernel does wrong is an Error that names the op and the operand.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "prun/op.hpp"

namespace prun {

// ------------------------------------------------------------------- kernel trial

// Is an operand with its elements.
struct TrialOperand {
  OperandShape shape;
  std::int64_t start[max_dims] = {};  // is where a part lies in the whole
  std::vector<std::byte> bytes;

  double number(std::size_t i) const;
  void set(std::size_t i, double number);
  std::size_t elements() const { return static_cast<std::size_t>(shape.elements()); }
};

// Says whether a type is floating-point, and so has a tolerance.
constexpr bool is_real(DType type) { return is_float(type); }

struct KernelCall {
  const OpDef* def = nullptr;
  std::vector<Attr> attrs;
  std::vector<TrialOperand> operands;  // as before the launch; those that are written hold nothing
  std::uint32_t begins = 0;            // bit i says that the sum in operand i begins here

  OpShape shape() const;
};

// Says whether the launch must not rely on the old values of that operand.
bool holds_nothing(const KernelCall& call, std::size_t i);

// Holds a call whose sums begin, if the kernel says they can (writes_first), and one that adds to zeros.
struct BegunSums {
  KernelCall begun, added;
};
std::optional<BegunSums> begun_sums(const KernelDef& kernel, const KernelCall& call);

// Says how a launch is made: operands must not depend on it.
struct LaunchManner {
  std::int32_t threads = 1;
  bool backwards = false;               // takes the last piece of work first
  unsigned char filling = 0xff;         // fills the workspace and operands that are to be written
  std::int64_t* most_pieces = nullptr;  // gets the number of pieces the kernel cut its work into
  bool strict = false;                  // throws an Error for a kernel that changes memory it must not write
};

// Returns the kernel for these operands, or null.
Kernel select_kernel(const KernelDef& kernel, const KernelCall& call);

// Returns the operand in the form that kernels take, stored at `data`.
Tensor tensor_of(const TrialOperand& operand, void* data);

// Returns the operands afterwards.
std::vector<TrialOperand> launch(const KernelDef& kernel, const KernelCall& call, const LaunchManner& manner);

// Throws an Error for a kernel that writes beside its results or its workspace, leaves elements unwritten,
// reads memory that was never written, or does not begin sums as it says.
void try_memory(const KernelDef& kernel, const KernelCall& call);

// Throws an Error for a kernel whose bits depend on the number of threads or on which is first. Returns
// whether several threads had something to do.
bool try_threads(const KernelDef& kernel, const KernelCall& call);

// Returns a text such as "op 'linear', operand 'bias'".
std::string operand_text(const OpDef& def, std::size_t i);

// ------------------------------------------------------------------- split trial
// Checks that an op's rule tells the truth: computed in parts, as the dimensions that it leaves unmarked
// allow, from partial sums that it passes on, and with positions in another order where the rule allows that,
// an op must give the same result as on the whole.

// Tries the marks in fp64. Throws an Error that names op, mark and operand. Returns what it could not try:
// dimensions that have no two equal parts.
std::vector<std::string> try_marks(const KernelDef& kernel, const KernelCall& call);

}  // namespace prun
