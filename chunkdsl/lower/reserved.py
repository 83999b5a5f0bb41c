"""Names that no kernel of a module may have: those of runtime/'s functions, which are copied into it. A test holds the
list against the files; reading them at every check would cost more than the rest of it."""

RESERVED = frozenset(
    "address_at admit_next agree_call alive anew announce any_placed argument_of arrive arrive_in as_declared "
    "await_ahead await_chunk await_turn band_of bare begin_ring block_for blocks_on bulk_wait by_fallback by_operator "
    "cast_to_declared cdiv clock close_call copied copy_box cut_columns cyclic_height cyclic_row deal deal_block "
    "deal_shards dealt_out define described empty_marks end_product end_unclosed erf_gelu even_rows fetch_rows "
    "fit_for follow_sums form_for free_name from_four from_two gelu_grad gelu_slope give_up gluon_api gluon_version "
    "halves hand_over hear high_value hold_until in_four in_order in_two is_placed join_columns joined keep_apart "
    "keep_epoch last_heard launch_warps launch_with_movers layout_held layout_places layout_shard leave left_right "
    "local_of low_value mesh_group mesh_shape minus_zero most_each moved multiply_stage narrow neighbours new_library "
    "next_epoch no_gradient norm_slope not_in_place note_where nvrtc_library one_by_one open_call operand_layout "
    "own_memory padded pair_of part_of parted pitch_of plain_descriptor product_in_f32 program_number proxy_fence "
    "ranks_in refuse_placed refuse_shared register_operators relu_grad residency results_of rms_norm_grad round_up "
    "row_pieces row_scale say_changed say_late send_mark send_marks send_marks_where send_word send_words "
    "send_words_where sendable set_flag shape_for shard_begin shard_height shard_rows share_memory sigmoid silu "
    "silu_grad slices_of slot_of speculate stage_shard start_early stride_of sum_in_order take take_gradients_in "
    "take_mark take_marks take_word take_words tanh tanh_grad tile_number tile_place tiles_of transformed turns_of "
    "unobserved updating value_at wait_flag walk_ascending walk_ascending_own walk_down walk_down_own "
    "walk_own_ascending walk_up walk_up_own want_success warp_matrix warp_tiles whole_sizes wide word_in_row "
    "words_each words_of write_where zigzag_height zigzag_row".split()
)
