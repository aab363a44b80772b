//! Operations of a person or program on a mesh, and on files of workflows and agents.
//!
//! Place in the flow: above client, inspection and dialects, below the command line and the HTTP
//! API. Both call these functions and serialize their results, so that `-o json` and the API return
//! the same documents.
//!
//! The crate never prints, does not read command-line arguments, and does not decide how a result
//! is displayed.

pub mod agent_calls;
pub mod agent_list;
pub mod agent_service;
pub mod agent_trust;
pub mod approval_filter;
pub mod approvals;
pub mod artifact_folder;
pub mod artifact_uses;
pub mod audit;
pub mod bulk;
pub mod callee_check;
pub mod catalogue;
pub mod catalogue_records;
pub mod conversation_view;
pub mod conversion_trial;
pub mod deployed_workflows;
pub mod deployment;
pub mod dev_note;
pub mod doctor;
pub mod dry_run;
pub mod execution_artifacts;
pub mod execution_changes;
pub mod execution_events;
pub mod execution_list;
pub mod execution_messages;
pub mod execution_result;
pub mod execution_retry;
pub mod execution_start;
pub mod export_file;
pub mod failure;
pub mod file_agents;
pub mod file_watch;
pub mod gateway_hooks;
pub mod gateway_keys;
pub mod history_import;
pub mod input_check;
pub mod input_files;
pub mod limited_deployment;
pub mod local_records;
pub mod mesh_activity;
pub mod mesh_operator;
pub mod mesh_status;
pub mod neighbours;
pub mod node_types;
pub mod observed_calls;
pub mod posted_file;
pub mod private_folder;
pub mod quantity;
pub mod quarantine;
pub mod ready_made;
pub mod reports;
pub mod sample_input;
pub mod sarif;
pub mod served_agents;
pub mod start;
pub mod steering;
pub mod tool_input;
pub mod traffic_figures;
pub mod version_change;
pub mod workflow_control;
pub mod workflow_figures;
pub mod workflow_file;
pub mod workflow_search;
pub mod workflow_sockets;
pub mod workflow_source;
