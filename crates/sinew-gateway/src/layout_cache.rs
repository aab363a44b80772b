//! Layouts of the last large drawings, by plan and opened parts.

use std::collections::VecDeque;
use std::sync::Arc;

use sinew_diagram::PlacedDrawing;
use tokio::sync::Mutex;

/// Layouts that are kept.
const MAX_LAYOUTS: usize = 8;

/// Layouts of the last drawings.
#[derive(Debug, Default)]
pub(crate) struct LayoutCache(Mutex<VecDeque<(String, Arc<PlacedDrawing>)>>);

impl LayoutCache {
    /// Returns the layout under a key, if it is kept.
    pub(crate) async fn find(&self, key: &str) -> Option<Arc<PlacedDrawing>> {
        let kept = self.0.lock().await;
        kept.iter().find(|(known, _)| known == key).map(|(_, placed)| Arc::clone(placed))
    }

    /// Returns the layout under a key, made now unless it is kept. Requests for several parts of one drawing come at once: the
    /// first makes the layout, the others wait for it.
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
