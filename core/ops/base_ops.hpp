// Names the ops that passes of the core insert, or look for: each name stands here, and where the op is
// defined.
#pragma once

namespace prun::base_ops {

inline constexpr const char* accumulate = "accumulate";
inline constexpr const char* add = "add";
inline constexpr const char* add_parts = "add_parts";
inline constexpr const char* add_tails = "add_tails";
inline constexpr const char* all_gather = "all_gather";
inline constexpr const char* all_reduce = "all_reduce";
inline constexpr const char* all_reduce_max = "all_reduce_max";
inline constexpr const char* all_reduce_max_update = "all_reduce_max_update";
inline constexpr const char* all_reduce_update = "all_reduce_update";
inline constexpr const char* all_to_all = "all_to_all";
inline constexpr const char* as_context = "as_context";
inline constexpr const char* as_seq = "as_seq";
inline constexpr const char* blank = "blank";
inline constexpr const char* block = "block";
inline constexpr const char* cast = "cast";
inline constexpr const char* checksum = "checksum";
inline constexpr const char* choose = "choose";
inline constexpr const char* clip_factor = "clip_factor";
inline constexpr const char* copy = "copy";
inline constexpr const char* count_non_finite = "count_non_finite";
inline constexpr const char* decode = "decode";
inline constexpr const char* document_starts = "document_starts";
inline constexpr const char* encode_onward = "encode_onward";
inline constexpr const char* gate = "gate";
inline constexpr const char* halo_tails = "halo_tails";
inline constexpr const char* halt_beyond = "halt_beyond";
inline constexpr const char* join_halo = "join_halo";
inline constexpr const char* join_pieces = "join_pieces";
inline constexpr const char* keep_summand = "keep_summand";
inline constexpr const char* lm_head_groups = "lm_head_groups";
inline constexpr const char* lm_head_loss = "lm_head_loss";
inline constexpr const char* lm_head_regularized_loss = "lm_head_regularized_loss";
inline constexpr const char* multiply = "multiply";
inline constexpr const char* pack = "pack";
inline constexpr const char* part_halo = "part_halo";
inline constexpr const char* positions = "positions";
inline constexpr const char* reciprocal = "reciprocal";
inline constexpr const char* reduce_scatter = "reduce_scatter";
inline constexpr const char* reduce_scatter_max = "reduce_scatter_max";
inline constexpr const char* scale = "scale";
inline constexpr const char* shift = "shift";
inline constexpr const char* slice = "slice";
inline constexpr const char* sum_decoded = "sum_decoded";
inline constexpr const char* sum_squares = "sum_squares";
inline constexpr const char* summand_squares = "summand_squares";
inline constexpr const char* swap_summands = "swap_summands";
inline constexpr const char* take_piece = "take_piece";
inline constexpr const char* total = "total";
inline constexpr const char* unblock = "unblock";
inline constexpr const char* unpack = "unpack";
inline constexpr const char* whole_logits = "whole_logits";
inline constexpr const char* zero = "zero";

}  // namespace prun::base_ops
