//! Layouts of recent large drawings, by plan and opened parts.

use std::collections::VecDeque;
use std::sync::Arc;

use sinew_diagram::PlacedDrawing;
use tokio::sync::Mutex;

/// Maximum number of cached layouts.
const MAX_LAYOUTS: usize = 8;

/// Layouts of recent drawings.
#[derive(Debug, Default)]
pub(crate) struct LayoutCache(Mutex<VecDeque<(String, Arc<PlacedDrawing>)>>);

impl LayoutCache {
    /// Returns the layout with this key if it is cached.
    pub(crate) async fn find(&self, key: &str) -> Option<Arc<PlacedDrawing>> {
        let kept = self.0.lock().await;
        kept.iter().find(|(known, _)| known == key).map(|(_, placed)| Arc::clone(placed))
    }

    /// Returns the layout with this key, and computes it if necessary. Parts of one drawing are
    /// requested concurrently: the first request computes the layout, and the others wait for it.
    pub(crate) async fn find_or_make<E>(
        &self,
        key: String,
        make: impl Future<Output = Result<PlacedDrawing, E>>,
    ) -> Result<Arc<PlacedDrawing>, E> {
        let mut kept = self.0.lock().await;
        if let Some((_, placed)) = kept.iter().find(|(known, _)| *known == key) {
            return Ok(Arc::clone(placed));
        }
        let placed = Arc::new(make.await?);
        kept.push_front((key, Arc::clone(&placed)));
        kept.truncate(MAX_LAYOUTS);
        Ok(placed)
    }
}
